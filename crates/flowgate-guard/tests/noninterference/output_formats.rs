//! Has the client demand a form of the model's text: a schema with a text that observers below its label may not see.

use flowgate::trace::EventId;
use flowgate_guard::history::{ClientProfile, History};
use flowgate_lm::chat::{OutputFormat, OutputSchema};
use serde_json::json;

use crate::random::Random;
use crate::run::RunState;
use crate::session::ObservedSession;
use crate::world;

impl RunState<'_> {
    /// In some turns, which `turn` tells apart, demands that the text matches a schema. In the second run the schema has another text if the
    /// observer may not see it. Everybody sees that there is one.
    pub(crate) fn demand_format(
        &mut self,
        session: &mut ObservedSession,
        first: Option<&ObservedSession>,
        turn: &str,
    ) {
        let case = self.case;
        let mut shared = Random::of(&format!("format {} {turn}", case.seed));
        if !shared.chance(40) {
            return;
        }
        let before = first.and_then(|first| Some((first, *first.formats.get(session.formats.len())?)));
        let description = match before {
            Some((first, event)) if !first.shows(&case.level, &case.label, event, "content") => {
                self.run.changed += 1;
                world::unlike_others(&mut self.hidden)
            }
            _ => world::unlike_others(&mut shared),
        };
        let format = OutputFormat::Schema(OutputSchema {
            name: "answer".to_owned(),
            description,
            schema: json!({"type": "object"}).into(),
            strict: None,
        });
        // The schema quotes nothing: a quotation would reveal bits of what it quotes, which are counted. Quotations are a
        // subject of the chats.
        let (mut client, mut history) = (ClientProfile::default(), History::new());
        session.conversation.set_output_format(&mut client, &mut history, Some(format)).expect("room");
        session.formats.push(EventId(session.trace().events().len() - 1));
    }
}
