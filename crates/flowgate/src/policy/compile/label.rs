//! Compiles `lattice` statements to the label space of the policy, and the lists of elements in other statements
//! (`untrusted, readers("ann")`) to labels. The compiler calls [`Compiler::dimensions`] first, and [`Compiler::label`]
//! for each statement that names a label.

use super::super::plan::{CompiledExpr, LabelPlan};
use super::super::syntax::{DimensionOrder, Expr, ExprKind, Name, PolicyFile, StatementKind};
use super::body::Scope;
use super::{CompileResult, Compiler};
use crate::label::{
    ComputedLabelUse, Dimension, DimensionKind, DimensionSet, Lattice, NameTable, PartialLabel, Purpose,
    Space,
};
use crate::value::Value;

/// Names that no element may have, since they have a meaning of their own in labels and statements.
const RESERVED: [&str; 5] = ["top", "bottom", "as", "if", "for"];

impl Compiler<'_> {
    /// Declares the label space of the policy from all its `lattice` statements. A dimension without a purpose
    /// expresses integrity if it is named `integrity`, and confidentiality otherwise. A dimension with an error is
    /// reported and omitted. If the dimensions together exceed a limit of the label space, this is reported as well,
    /// and the policy has none of them.
    pub(super) fn dimensions(&mut self, file: &PolicyFile) {
        let mut dimensions: Vec<Dimension> = Vec::new();
        // The location of each dimension, for an error about it.
        let mut spans = Vec::new();
        for statement in &file.statements {
            let StatementKind::Lattice { name, purpose, order } = &statement.kind else { continue };
            if dimensions.iter().any(|known| known.name == name.text) {
                let message = format!("the dimension `{}` is declared twice", name.text);
                // `fail` has reported the error. Its result is dropped, so that the next dimension is compiled.
                let _ = self.fail::<()>("duplicate-name", &name.span, message, "rename one of them");
                continue;
            }
            let Ok(purpose) = self.purpose(name, purpose.as_ref()) else { continue };
            if *order == DimensionOrder::Approvers && purpose == Purpose::Integrity {
                let message =
                    format!("the dimension `{}` lists approvers, so it cannot express integrity", name.text);
                let help = "`payload` and `endorse` would lift what people must approve: rename it, or leave \
                    `(integrity)` out";
                let _ = self.fail::<()>("label", &name.span, message, help);
                continue;
            }
            if let Ok(kind) = self.dimension_kind(name, order) {
                dimensions.push(Dimension::new(&name.text, purpose, kind));
                spans.push(name.span.clone());
            }
        }
        match Space::new(dimensions) {
            Ok(space) => self.plan.space = space,
            Err(error) => {
                // `dimension` is the index of the first dimension that does not fit.
                let span = spans.get(error.dimension).cloned().unwrap_or(0..0);
                let _ = self.fail::<()>("too-many", &span, error.message, error.help);
            }
        }
    }

    /// Returns the purpose of the dimension `name`: the one that its statement declares or, without a declaration, the
    /// one that the name implies. Fails for an unknown purpose.
    fn purpose(&mut self, name: &Name, declared: Option<&Name>) -> CompileResult<Purpose> {
        match declared {
            Some(purpose) if purpose.text == "integrity" => Ok(Purpose::Integrity),
            Some(purpose) if purpose.text == "secrecy" => Ok(Purpose::Secrecy),
            Some(purpose) => {
                self.unknown_name("purpose", &purpose.text, &purpose.span, &["integrity", "secrecy"])
            }
            None if name.text == "integrity" => Ok(Purpose::Integrity),
            None => Ok(Purpose::Secrecy),
        }
    }

    /// Compiles the order of a dimension: chains of named elements (`a < b < c`), which must form a lattice; sets of
    /// names that the policy lists (`set of a, b`) or not (`set`); readers; approvers; or time.
    fn dimension_kind(&mut self, name: &Name, order: &DimensionOrder) -> CompileResult<DimensionKind> {
        match order {
            DimensionOrder::Set(None) => Ok(DimensionKind::OpenSet),
            DimensionOrder::Readers => Ok(DimensionKind::Readers),
            DimensionOrder::Approvers => Ok(DimensionKind::Approvers),
            DimensionOrder::Time => Ok(DimensionKind::Time),
            DimensionOrder::Set(Some(names)) => {
                for (index, element) in names.iter().enumerate() {
                    if names.iter().take(index).any(|known| known.text == element.text) {
                        let message = format!("`{}` is in the set twice", element.text);
                        return self.fail("duplicate-name", &element.span, message, "remove one of them");
                    }
                }
                Ok(DimensionKind::Set(names.iter().map(|name| name.text.clone()).collect()))
            }
            DimensionOrder::Edges(chains) => {
                let elements: Vec<&Name> = chains.iter().flatten().collect();
                if let Some(reserved) =
                    elements.iter().find(|element| RESERVED.contains(&element.text.as_str()))
                {
                    let message =
                        format!("`{}` is reserved, and cannot be the name of an element", reserved.text);
                    return self.fail("reserved", &reserved.span, message, "choose another name");
                }
                let names: Vec<&str> = elements.iter().map(|element| element.text.as_str()).collect();
                // Neighbours in a chain: each element is below the next one.
                let edges: Vec<(&str, &str)> = chains
                    .iter()
                    .flat_map(|chain| chain.iter().zip(chain.iter().skip(1)))
                    .map(|(lower, upper)| (lower.text.as_str(), upper.text.as_str()))
                    .collect();
                match Lattice::from_edges(&names, &edges) {
                    Ok(lattice) => Ok(DimensionKind::Order(lattice)),
                    Err(problem) => {
                        let message = format!("`{}` is not a lattice: {problem}", name.text);
                        let help = problem.help();
                        self.fail("not-a-lattice", &name.span, message, help)
                    }
                }
            }
        }
    }

    /// Compiles a label, a list of elements such as `untrusted, readers(call.arguments.to)`. The result has the fixed
    /// elements as one label, and the expressions of the computed ones, which depend on values of an event. Fails if
    /// the list has two elements of one dimension.
    pub(super) fn label(&mut self, parts: &[Expr], scope: &mut Scope) -> CompileResult<LabelPlan> {
        let is_top = |part: &Expr| matches!(&*part.kind, ExprKind::Name(name) if name == "top");
        let mut label = LabelPlan { is_top: parts.iter().all(is_top), ..LabelPlan::default() };
        for part in parts {
            let fixed = match &*part.kind {
                ExprKind::Name(name) => self.element(name, part)?,
                ExprKind::Member(dimension, element) => {
                    let ExprKind::Name(dimension) = &*dimension.kind else {
                        return self.not_an_element(part);
                    };
                    self.qualified_element(dimension, element, part)?
                }
                ExprKind::Call(function, arguments, named) if named.is_empty() => {
                    let ExprKind::Name(dimension) = &*function.kind else {
                        return self.not_an_element(part);
                    };
                    match self.computed_element(dimension, arguments, part, scope)? {
                        Ok(fixed) => fixed,
                        // This `Err` is no failure: it is an element that is computed from values of an event.
                        Err((dimension, expressions)) => {
                            // The dimension is known: `computed_element` has looked it up.
                            let index = self.plan.space.index(&dimension).unwrap_or(usize::MAX);
                            self.add_dimensions(&mut label, DimensionSet::single(index), part)?;
                            label.computed.push((dimension, expressions));
                            continue;
                        }
                    }
                }
                _ => return self.not_an_element(part),
            };
            self.add_dimensions(&mut label, fixed.dims, part)?;
            label.fixed = Some(label.fixed.unwrap_or(PartialLabel::NONE).join(&fixed));
        }
        Ok(label)
    }

    /// Adds `dims`, the dimensions of the element `part`, to the dimensions of a label. Fails if the label already has
    /// an element in one of these dimensions, since a label has one element in each dimension.
    fn add_dimensions(
        &mut self,
        label: &mut LabelPlan,
        dims: DimensionSet,
        part: &Expr,
    ) -> CompileResult<()> {
        // The intersection of the two sets.
        let repeated = label.dims.without(label.dims.without(dims));
        if !repeated.is_empty() {
            let help = "name one element of each dimension";
            return self.fail("label", &part.span, "the label has two elements of one dimension", help);
        }
        label.dims = label.dims.union(dims);
        Ok(())
    }

    /// Fails because `part`, one of the parts of a label, is not an element of a dimension.
    fn not_an_element<T>(&mut self, part: &Expr) -> CompileResult<T> {
        let help = "write elements (`trusted`), `DIMENSION(names)`, `top` or `bottom`, separated by commas";
        self.fail("label", &part.span, "the expression is not an element of a dimension", help)
    }

    /// Returns the label of an element that is named without its dimension, or of `top` or `bottom` in all dimensions.
    /// Fails if no dimension or more than one has an element of this name. `part` is the expression, for the error
    /// message.
    fn element(&mut self, name: &str, part: &Expr) -> CompileResult<PartialLabel> {
        let space = &self.plan.space;
        match name {
            "top" => return Ok(PartialLabel { dims: space.all(), label: space.top() }),
            "bottom" => return Ok(PartialLabel { dims: space.all(), label: crate::label::Label::BOTTOM }),
            _ => {}
        }
        let owners: Vec<(String, PartialLabel)> = space
            .dimensions()
            .iter()
            .filter_map(|dimension| Some((dimension.name.clone(), space.element(&dimension.name, name)?)))
            .collect();
        match owners.as_slice() {
            [(_, partial)] => Ok(*partial),
            [] => {
                let elements = space.dimensions().iter().flat_map(|dimension| match &dimension.kind {
                    DimensionKind::Order(lattice) => lattice.names().to_vec(),
                    _ => vec![format!("{}(...)", dimension.name)],
                });
                let mut known: Vec<String> =
                    elements.chain(["top".to_owned(), "bottom".to_owned()]).collect();
                // Two dimensions may have elements of the same name.
                let mut seen = std::collections::HashSet::new();
                known.retain(|name| seen.insert(name.clone()));
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                self.unknown_name("element", name, &part.span, &known)
            }
            [(first, _), (second, _), ..] => {
                let message = format!("`{name}` is an element of `{first}` and of `{second}`");
                let help = format!("write `{first}.{name}` or `{second}.{name}`");
                self.fail("ambiguous", &part.span, message, help)
            }
        }
    }

    /// Returns the label of an element that is named with its dimension: `integrity.trusted`, or `integrity.top` for
    /// the greatest element of that dimension alone. `part` is the expression, for the error message.
    fn qualified_element(
        &mut self,
        dimension: &str,
        element: &Name,
        part: &Expr,
    ) -> CompileResult<PartialLabel> {
        let index = self.dimension(dimension, part)?;
        let space = &self.plan.space;
        match element.text.as_str() {
            "top" => Ok(space.dimension_top(index)),
            "bottom" => Ok(space.dimension_bottom(index)),
            name => match space.element(dimension, name) {
                Some(partial) => Ok(partial),
                None => {
                    let known: Vec<String> = match space.dimensions().get(index).map(|d| &d.kind) {
                        Some(DimensionKind::Order(lattice)) => lattice.names().to_vec(),
                        // Only `top` and `bottom` have names of their own in a dimension without declared elements.
                        _ => vec!["top".to_owned(), "bottom".to_owned()],
                    };
                    let known: Vec<&str> = known.iter().map(String::as_str).collect();
                    self.unknown_name("element", name, &element.span, &known)
                }
            },
        }
    }

    /// Returns the index of a dimension; fails if the policy declares none of this name. `part` is the expression that
    /// names it, for the error message.
    fn dimension(&mut self, name: &str, part: &Expr) -> CompileResult<usize> {
        if let Some(index) = self.plan.space.index(name) {
            return Ok(index);
        }
        let known: Vec<String> = self.plan.space.dimensions().iter().map(|d| d.name.clone()).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        self.unknown_name("dimension", name, &part.span, &known)
    }

    /// Compiles an element that is written as a call of its dimension, such as `readers(x, "bob")`. Returns
    /// `Ok(Ok(...))` with a fixed element if the policy lists the names of the dimension (`set of a, b`) and all
    /// arguments are such names. Otherwise the element is computed for each event: returns `Ok(Err(...))` with the
    /// name of the dimension and the expressions that it is computed from. The outer `Err` is an error in the policy.
    fn computed_element(
        &mut self,
        dimension: &str,
        arguments: &[Expr],
        part: &Expr,
        scope: &mut Scope,
    ) -> CompileResult<Result<PartialLabel, (String, Vec<CompiledExpr>)>> {
        let index = self.dimension(dimension, part)?;
        let kind = self.plan.space.dimensions().get(index).map(|d| d.kind.clone());
        if let Some(DimensionKind::Order(_)) = kind {
            let help = format!("write `{dimension}.ELEMENT`");
            return self.fail(
                "label",
                &part.span,
                format!("`{dimension}` has fixed elements, so no names in parentheses can follow it"),
                help,
            );
        }
        // In a dimension whose names the policy lists, the element is fixed if all arguments are such names.
        if let Some(DimensionKind::Set(known)) = &kind
            && let Some(names) = self.listed_names(known, arguments)?
        {
            let mut name_table = NameTable::new(&self.plan.space);
            if let Some(partial) = name_table.set(&self.plan.space, dimension, &names, ComputedLabelUse::Data)
            {
                return Ok(Ok(partial));
            }
        }
        // Any other element is computed. A date that is written here is checked now.
        let mut compiled = Vec::new();
        for argument in arguments {
            compiled.push(self.expression(argument, scope)?);
        }
        if let (Some(DimensionKind::Time), [CompiledExpr::Constant(Value::Str(text))]) =
            (&kind, compiled.as_slice())
            && crate::builtin::seconds(text).is_none()
        {
            let help = "write `2024-05-19` or `2024-05-19 12:00`";
            return self.fail("label", &part.span, "the expression is not a date", help);
        }
        Ok(Err((dimension.to_owned(), compiled)))
    }

    /// Returns the names that `arguments` spell, if all of them are among the `known` names of a dimension. `None` if
    /// an argument is computed; a text that is not known counts as computed. Fails for a name that is not known.
    fn listed_names(&mut self, known: &[String], arguments: &[Expr]) -> CompileResult<Option<Vec<String>>> {
        let mut names = Vec::new();
        for argument in arguments {
            match &*argument.kind {
                ExprKind::Name(name) | ExprKind::Str(name) if known.contains(name) => {
                    names.push(name.clone());
                }
                ExprKind::Name(name) => {
                    let known: Vec<&str> = known.iter().map(String::as_str).collect();
                    return self.unknown_name("element", name, &argument.span, &known);
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(names))
    }
}
