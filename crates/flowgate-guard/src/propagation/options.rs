//! Defines the options of a label search, which finds the least labels whose documents are sufficient for an answer,
//! and their defaults. A program sets them; `wrapper` and `find` read them.

use flowgate::label::Label;

/// Which search finds the labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SearchKind {
    /// [`HittingSet`](super::HittingSet): finds the labels that `Literal` finds, in fewer tests, if the utility is
    /// monotone.
    #[default]
    HittingSet,
    /// [`Literal`](super::Literal): Algorithm 1, whose number of tests grows with the size of the lattice.
    Literal,
}

/// How much utility an answer may lose, and what may be spent to find its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct PropagationOptions {
    /// λ: the utility that an answer may lose (definition 1). At least 0.
    pub lambda: f64,
    /// The search.
    pub search: SearchKind,
    /// The most subcontexts that are tested or scored, besides the context: for the search, for leave-one-in, for a
    /// goal and for Shapley values together. A search that has spent them returns the least labels so far: the naive
    /// label, if nothing better was found.
    pub budget: usize,
    /// The most subcontexts in one batch. A larger batch takes less time on a model that evaluates it in parallel, and
    /// may score subcontexts that a smaller one would not need.
    pub batch: usize,
    /// If set, the search considers only *helpful* labels, those whose documents alone raise the utility by more than
    /// this threshold (leave-one-in). If the documents of all helpful labels together are not sufficient, it considers
    /// all labels. A search of helpful labels misses minimal labels whose documents help only together.
    pub leave_one_in: Option<f64>,
    /// If set, a found label is dropped if it needs a label whose Shapley value is below the threshold (appendix A).
    /// If the budget is too small, the values are estimated from fewer orders of the labels; if it is too small for two
    /// orders, nothing is dropped.
    pub shapley: Option<ShapleyPruning>,
    /// If set, the utility that may be lost for a label that flows to a goal (section 6.3, dynamic λ).
    pub goal: Option<Goal>,
}

/// The pruning by Shapley values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShapleyPruning {
    /// The least Shapley value of a label that a result may need.
    pub threshold: f64,
    /// The number of permutations that are sampled for more than ten labels, or where the budget is too small for exact
    /// values.
    pub permutations: usize,
    /// The seed of the permutations.
    pub seed: u64,
}

/// A label for which an answer may lose more utility than λ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// The greatest label that serves the purpose, such as the requirement of a later call.
    pub label: Label,
    /// The utility that may be lost for this label.
    pub lambda: f64,
}

impl Default for PropagationOptions {
    /// Returns options with λ = 0.2, as for the agent data set of Permissive Information-Flow Analysis, and with a
    /// budget of 200 subcontexts, which are tested one by one. There are no prunings and no goal.
    fn default() -> Self {
        Self {
            lambda: 0.2,
            search: SearchKind::default(),
            budget: 200,
            batch: 1,
            leave_one_in: None,
            shapley: None,
            goal: None,
        }
    }
}
