//! Stores a turn: the inputs of its conversation, with everything that follows from them.
//!
//! A turn is stored in one transaction with its changes to questions, to the labels of its tenant's stores and to the
//! texts that its client was shown.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::Instant;

use flowgate_guard::history::{self, Prefix, Remembered};

use super::{Found, Held, STALE, Session, Sessions, hex, recall};
use crate::limits::values;
use crate::log::Event as LogEvent;
use crate::model_routes::clients::Known;
use crate::model_routes::turn::Failure;
use crate::random;
use crate::store::{self, Kept, Seen, Store, StoreError, Transaction, wait};

impl Sessions {
    /// Stores the inputs of a turn, with everything that follows from them. Only then may the part of the turn be sent
    /// that could not be released early.
    pub(crate) fn keep(&self, client: &Known, found: &Found, held: &mut Held<'_>) -> Result<(), Failure> {
        let Some(session) = held.session.as_mut() else { return Ok(()) };
        if session.is_unasked {
            self.drop_turn(found, held);
            return Ok(());
        }
        for (predicate, why) in session.answers.failures() {
            let fields =
                vec![("conversation", found.name().into()), ("predicate", predicate.as_str().into())];
            let sentence = format!("a predicate has no answer, and what asks it fails: {why}");
            self.log.write(LogEvent::Upstream, &client.spec.name, fields, &sentence);
        }
        // A rejected request is no turn.
        let is_empty = !session.conversation.has_inputs() && !session.machines.has_steps();
        if is_empty && session.used.is_empty() && session.void.is_empty() {
            return Ok(wait(self.store.let_go(&client.spec.name, found.name()))?);
        }
        // The lock orders what a client was shown in memory as it is ordered in the store.
        let mut known = client.history.lock().unwrap_or_else(PoisonError::into_inner);
        session.conversation.tell(&mut known.client, &mut session.history);
        let learned = known.client.seen.learned();
        let kept = self.keep_turn(client, found, session, known.next, &learned);
        match kept {
            Ok((others, next)) => {
                known.next = next;
                recall(&mut known.client, others);
                let full = known.client.seen.take_full();
                drop(known);
                self.report_full(client, found.name(), &full);
                self.memory().note(&found.key, session.memory());
                Ok(())
            }
            Err(error) => {
                known.client.seen.put_back(learned);
                drop(known);
                Err(self.give_up(found, held, error))
            }
        }
    }

    /// Drops a conversation from memory that is ahead of the store.
    pub(crate) fn give_up(&self, found: &Found, held: &mut Held<'_>, error: StoreError) -> Failure {
        self.drop_turn(found, held);
        error.into()
    }

    /// Drops a conversation from memory; the next request finds it as it was stored last.
    fn drop_turn(&self, found: &Found, held: &mut Held<'_>) {
        *held.session = None;
        let _ = wait(self.store.let_go(&found.key.0, found.name()));
    }

    fn keep_turn(
        &self,
        client: &Known,
        found: &Found,
        session: &mut Session,
        next: i64,
        learned: &history::Learned,
    ) -> Result<(Vec<Seen>, i64), StoreError> {
        let (spec, name) = (&client.spec, found.name());
        // Most turns change nothing but their conversation: these are stored in one step on this thread.
        let is_alone = session.used.is_empty()
            && session.void.is_empty()
            && learned.texts.is_empty()
            && learned.full.is_empty()
            && self.leaves_stores(client, session)?;
        let tx = if is_alone { None } else { Some(wait(store::within(self.begin_turn(client, session)))?) };
        let inputs = session.row().map_err(|_| StoreError::Damaged("an input has no JSON"))?;
        let prefixes = session.history.prefixes();
        let longest = prefixes.last().map(hex);
        let is_stale = session.touched.elapsed() > STALE;
        let kept = Kept {
            client: &spec.name,
            name,
            conversation: session.id,
            is_stale,
            turns: session.turns,
            bytes: session.bytes,
            inputs: &inputs,
            prefixes: &beyond(&prefixes, &session.prefixes),
            forgotten: &beyond(&session.prefixes, &prefixes),
            longest: longest.as_deref(),
        };
        let (others, next) = match tx {
            None => {
                self.store.keep_alone(&kept)?;
                (Vec::new(), next)
            }
            Some(mut tx) => wait(store::within(async {
                store::keep_turn(&self.store, &mut tx, &kept).await?;
                let kept = keep_learned(&self.store, &mut tx, client, next, learned).await?;
                tx.commit().await?;
                Ok(kept)
            }))?,
        };
        if is_stale {
            session.touched = Instant::now();
        }
        session.turns += 1;
        session.bytes = session.bytes.saturating_add(i64::try_from(inputs.len()).unwrap_or(i64::MAX));
        session.values = session.values.saturating_add(values(inputs.as_bytes()));
        session.prefixes = prefixes;
        Ok((others, next))
    }

    /// Returns whether a turn leaves the labels of its tenant's stores unchanged.
    fn leaves_stores(&self, client: &Known, session: &mut Session) -> Result<bool, StoreError> {
        let Some(Some(before)) = self.store.known_tenant(&client.spec.tenant) else { return Ok(false) };
        if session.conversation.has_written() {
            return Ok(false);
        }
        session.recall(&before).map_err(|_| StoreError::Damaged("a tenant's stores"))?;
        let now = Some(session.conversation.memory_changes());
        if session.settled != now {
            let written = session.conversation.remember().to_string();
            session.settled = now.filter(|_| written == before);
        }
        Ok(session.settled == now)
    }

    /// Begins the transaction of a turn with its changes to questions and to the labels of its tenant's stores.
    async fn begin_turn(&self, client: &Known, session: &mut Session) -> Result<Transaction, StoreError> {
        let spec = &client.spec;
        let mut tx = self.store.begin().await?;
        for asked in std::mem::take(&mut session.used) {
            store::use_question(&self.store, &mut tx, &asked.id).await?;
        }
        for asked in std::mem::take(&mut session.void) {
            store::void_question(&mut tx, &asked.id).await?;
        }
        // Joins the labels that others of the tenant have written to stores in the meantime with those of this
        // conversation.
        let before = store::take_tenant(&self.store, &mut tx, &spec.tenant).await?;
        if let Some(before) = &before {
            session.recall(before).map_err(|_| StoreError::Damaged("a tenant's stores"))?;
        }
        let stamp = random::name().map_err(|_| StoreError::Damaged("the system gives no random bytes"))?;
        session.conversation.stamp(&stamp);
        let written = session.conversation.remember().to_string();
        if before.as_ref() != Some(&written) {
            store::keep_tenant(&self.store, &mut tx, &spec.tenant, &written).await?;
        }
        Ok(tx)
    }
}

/// Stores the texts that a client was shown in a turn. Returns the texts that others have stored from number `next`
/// on, and the number after the last.
async fn keep_learned(
    store: &Store,
    tx: &mut Transaction,
    client: &Known,
    next: i64,
    learned: &history::Learned,
) -> Result<(Vec<Seen>, i64), StoreError> {
    let name = &client.spec.name;
    let new: Vec<Seen> = learned.texts.iter().map(seen).collect();
    if new.is_empty() && learned.full.is_empty() {
        return Ok((Vec::new(), next));
    }
    let (others, next) = store::keep_seen(store, tx, name, next, &new).await?;
    for (source, most) in &learned.full {
        store::forget_seen(tx, name, source, i64::try_from(*most).unwrap_or(i64::MAX)).await?;
    }
    Ok((others, next))
}

/// Returns the digests of `prefixes` that are not in `others`, in hexadecimal.
fn beyond(prefixes: &[Prefix], others: &[Prefix]) -> Vec<String> {
    // Two versions of a chat mostly share their first prefixes.
    let same = prefixes.iter().zip(others).take_while(|(one, other)| one == other).count();
    let others: HashSet<&Prefix> = others.iter().skip(same).collect();
    prefixes.iter().skip(same).filter(|prefix| !others.contains(prefix)).map(hex).collect()
}

fn seen(text: &Remembered) -> Seen {
    Seen { source: text.source.clone(), label: text.label.to_string(), letters: text.letters.clone() }
}
