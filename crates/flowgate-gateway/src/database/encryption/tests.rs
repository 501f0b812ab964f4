//! Tests that content is found in no encrypted database, that altered values are noticed, and that keys are replaced.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flowgate::monitor::PersonDecision;

use super::place::{ContentColumn, DigestColumn};
use super::{Content, EncryptionKeys};
use crate::database::QuestionOrigin;
use crate::database::postgres::tests::create_database;
use crate::database::turns::tests::{TestDatabases, test_turn};
use crate::database::{
    AskOutcome, CarriedTurns, Database, DatabaseAddress, DatabaseError, GrantCandidate, GrantLimits,
    NewGrant, NewQuestion, NewShownTexts, PersistedTurn, QuestionLimits, ShownText, TurnApprovals,
};
use crate::random;

/// What occurs in every content of these tests.
const MARKER: &str = "zq-Geheimnis \"Ä\" 4711";
/// A digest that is looked up, and the beginning of a chat that it is of.
const PREFIX: &str = "00112233445566778899aabbccddeeff";
/// A digest by which a lasting grant is found.
const MATCHING: &str = "ffeeddccbbaa99887766554433221100";

fn keys(bytes: &[u8]) -> EncryptionKeys {
    let words: Vec<String> = bytes.iter().map(|byte| random::hex(&[*byte; 32])).collect();
    EncryptionKeys::read(&words.join("\n")).unwrap()
}

/// Closes a database, and lets others use its file.
async fn close(database: Database) {
    database.close().await;
}

fn content(what: &str) -> Content {
    serde_json::json!([what, MARKER]).to_string().into()
}

fn question<'a>(id: &'a str, text: &'a str, turns: i64) -> NewQuestion<'a> {
    NewQuestion {
        id,
        client: "c",
        name: "one",
        tenant: "t",
        config_fingerprint: "b",
        digest: "d",
        content: text,
        expires_after: 3_600_000,
        origin: QuestionOrigin::Chat { turns, since: 0 },
        used: &[],
        limits: QuestionLimits::UNLIMITED,
    }
}

/// Stores the marker in every column with content.
async fn store_everything(database: &Database) {
    let opened = database.open_conversation(("c", "one"), "b", &format!("key {MARKER}"), 0).await.unwrap();
    let prefixes = [PREFIX.to_owned()];
    let turn = PersistedTurn { inputs: content("turn 0"), ..test_turn(("one", opened.id), 0, &prefixes) };
    database.persist_turn(turn).await.unwrap();
    // The turn has released the lease on a shared database.
    let opened = database.open_conversation(("c", "one"), "b", "k", 0).await.unwrap();
    let begun = database.begin_turn("t", TurnApprovals::default()).await.unwrap();
    let shown = NewShownTexts {
        client: "c".to_owned(),
        from: 0,
        texts: vec![ShownText { source: "s".to_owned(), label: content("label"), text: MARKER.into() }],
        full: Vec::new(),
    };
    let carried = CarriedTurns {
        config_fingerprint: "b".to_owned(),
        key: content("carried key"),
        inputs: vec![content("carried turn")],
    };
    let turn = PersistedTurn {
        inputs: content("turn 1"),
        carried: Some(carried),
        ..test_turn(("one", opened.id), 1, &[])
    };
    let record = content("record").into_string();
    database.finish_turn(begun, Some(record), turn, Some(shown)).await.unwrap();
    let text = content("question").into_string();
    assert!(matches!(database.ask(&question("q", &text, 1), |_| Ok(())).await, Ok(AskOutcome::New(_))));
    let grant = NewGrant {
        id: "g".to_owned(),
        config_fingerprint: "b".to_owned(),
        matching: MATCHING.to_owned(),
        days: None,
        limits: GrantLimits::default(),
        used: (1, 0),
    };
    let decision = PersonDecision::AllowLasting;
    database.decide(("q", "d"), decision, "bob", Some(grant), || Ok(())).await.unwrap().unwrap();
}

/// Checks that everything that [`store_everything`] has stored is read again.
async fn check_everything(database: &Database) {
    let text = |what: &str| content(what).into_string();
    let journal = database.read_journal("c", "one").await.unwrap().unwrap();
    assert_eq!(
        (journal.key, journal.inputs),
        (text("carried key"), vec![text("carried turn"), text("turn 1")])
    );
    let opened = database.open_conversation(("c", "one"), "b", "k", 1).await.unwrap();
    assert_eq!((opened.key, opened.inputs, opened.turns), (text("carried key"), vec![text("turn 1")], 2));
    database.release_lease("c", "one").await.unwrap();
    let found = database.find_by_chat("c", &[PREFIX.to_owned()]).await.unwrap();
    assert_eq!(found.as_deref(), Some("one"));
    assert_eq!(database.tenant("t").await.unwrap(), Some(text("record")));
    let shown = database.shown_texts("c", 0).await.unwrap();
    assert_eq!(
        shown.texts,
        [ShownText { source: "s".to_owned(), label: content("label"), text: MARKER.into() }]
    );
    let (sources, _) = database.source_usages("c").await.unwrap();
    let characters = i64::try_from(MARKER.chars().count()).unwrap();
    assert_eq!(sources.first().map(|source| source.characters), Some(characters));
    let asked = database.question("q").await.unwrap().unwrap();
    assert_eq!((asked.content, asked.decided_by.as_str()), (text("question"), "bob"));
    assert_eq!(database.lasting_grant("g").await.unwrap().unwrap().content, text("question"));
    let candidate = GrantCandidate { matching: MATCHING.to_owned(), calls: 1, amount: 0 };
    assert!(database.has_lasting_grant("c", &[candidate]).await.unwrap());
}

/// Returns everything that a database has stored: all values of all tables, or the bytes of the files.
async fn everything_stored(place: &DatabaseAddress, database: &Database) -> Vec<u8> {
    if let Some(path) = place.file() {
        return read_files(path);
    }
    let sql = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'";
    let mut bytes = Vec::new();
    for row in &mut database.query_for_test(sql).await.unwrap() {
        let (table, column) = (row.text(0).unwrap(), row.text(1).unwrap());
        let sql = format!("SELECT CAST({column} AS TEXT) FROM {table}");
        for value in &mut database.query_for_test(&sql).await.unwrap() {
            bytes.extend(value.text(0).unwrap_or_default().into_bytes());
            bytes.push(0);
        }
    }
    bytes
}

/// Returns the bytes of a SQLite file and of its write-ahead log.
fn read_files(path: &Path) -> Vec<u8> {
    let files = crate::database::sqlite::file::database_files(path);
    files.iter().filter_map(|file| std::fs::read(file).ok()).flatten().collect()
}

/// Returns whether the marker is in these bytes: as it is, escaped as in JSON, in base64 or in hexadecimal.
fn has_marker(bytes: &[u8]) -> bool {
    let word = "Geheimnis";
    let escaped = serde_json::json!(MARKER).to_string();
    let mut forms: Vec<Vec<u8>> = vec![
        word.into(),
        escaped.into(),
        random::hex(word.as_bytes()).into(),
        random::hex(word.as_bytes()).to_uppercase().into(),
    ];
    // The characters in base64 that do not depend on what is around the word, for each of its three positions.
    for shift in 0..3 {
        let padded = [&[0; 3][..shift], word.as_bytes()].concat();
        let encoded = STANDARD.encode(&padded).into_bytes();
        let begin = (shift * 8).div_ceil(6);
        let end = padded.len() * 8 / 6;
        forms.push(encoded.get(begin..end).unwrap().to_vec());
    }
    forms.iter().any(|form| bytes.windows(form.len()).any(|window| window == form))
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The databases of a test: a new file, and a database of PostgreSQL if there is a server.
async fn places(test: &str) -> (TestDatabases, Vec<DatabaseAddress>) {
    let files = TestDatabases::new(test);
    let [_, file] = files.addresses();
    let postgres = create_database(&test.replace('-', "_")).await.map(DatabaseAddress::Postgres);
    (files, std::iter::once(file).chain(postgres).collect())
}

#[test]
fn a_marker_is_found_in_all_its_forms() {
    for (text, expected) in [
        (MARKER.to_owned(), true),
        (format!("x{}", STANDARD.encode(format!("1{MARKER}"))), true),
        (STANDARD.encode(format!("12{MARKER}")), true),
        (STANDARD.encode(format!("123{MARKER}")), true),
        (random::hex(MARKER.as_bytes()), true),
        (serde_json::json!([MARKER]).to_string(), true),
        ("zq-geheim".to_owned(), false),
    ] {
        assert_eq!(has_marker(text.as_bytes()), expected, "{text}");
    }
}

#[tokio::test]
async fn no_content_is_found_in_an_encrypted_database() {
    let (_files, places) = places("encrypted-content").await;
    for place in places {
        let database = Database::open_with_keys(&place, &keys(&[1])).await.unwrap();
        assert!(!database.is_partly_encrypted());
        store_everything(&database).await;
        check_everything(&database).await;
        let stored = everything_stored(&place, &database).await;
        assert!(!has_marker(&stored) && !has(&stored, PREFIX) && !has(&stored, MATCHING), "{place:?}");
        // Names, by which rows are found, are not encrypted: the search does search.
        assert!(has(&stored, "bob"), "{place:?}");
        close(database).await;
    }
}

#[tokio::test]
async fn content_is_found_without_a_key_and_not_after_it_was_encrypted() {
    let (_files, places) = places("encrypted-later").await;
    for place in places {
        let database = Database::open(&place).await.unwrap();
        store_everything(&database).await;
        let stored = everything_stored(&place, &database).await;
        assert!(has_marker(&stored) && has(&stored, PREFIX) && has(&stored, MATCHING), "{place:?}");
        close(database).await;

        // With a key, what is there is still read, and what is new is encrypted.
        let database = Database::open_with_keys(&place, &keys(&[1])).await.unwrap();
        assert!(database.is_partly_encrypted());
        check_everything(&database).await;
        close(database).await;

        let database = Database::open_with_keys(&place, &keys(&[1])).await.unwrap();
        let mut seen = Vec::new();
        let mut note = |done: u64, total: u64| {
            seen.push((done, total));
            true
        };
        let is_file = place.file().is_some();
        let report = database.encrypt_all(false, is_file, &mut note).await.unwrap();
        assert_eq!((report.rows, report.encrypted, report.is_complete), (7, 7, true), "{place:?}");
        assert!(seen.iter().all(|(done, total)| *done <= *total && *total == 7), "{seen:?}");
        close(database).await;

        let database = Database::open_with_keys(&place, &keys(&[1])).await.unwrap();
        assert!(!database.is_partly_encrypted());
        let stored = everything_stored(&place, &database).await;
        assert!(!has_marker(&stored) && !has(&stored, PREFIX) && !has(&stored, MATCHING), "{place:?}");
        check_everything(&database).await;
        // Nothing is left to do.
        let report = database.encrypt_all(false, false, &mut |_, _| true).await.unwrap();
        assert_eq!((report.rows, report.encrypted), (7, 0));
        // A conversation of which the prefixes were encrypted later is deleted with them.
        database.delete_conversation("c", "one").await.unwrap();
        assert!(database.query_for_test("SELECT 1 FROM prefixes").await.unwrap().is_empty());
        close(database).await;
    }
}

/// One conversation has the beginning of a chat in the form without a key, and a newer one in the form with it.
#[tokio::test]
async fn a_chat_is_ambiguous_if_two_conversations_have_it_in_different_forms() {
    let (_files, places) = places("encryption-ambiguous").await;
    for place in places {
        let database = Database::open(&place).await.unwrap();
        store_everything(&database).await;
        close(database).await;

        let database = Database::open_with_keys(&place, &keys(&[1])).await.unwrap();
        let prefixes = [PREFIX.to_owned()];
        assert_eq!(database.find_by_chat("c", &prefixes).await.unwrap().as_deref(), Some("one"));
        let opened = database.open_conversation(("c", "two"), "b", "k", 0).await.unwrap();
        database.persist_turn(test_turn(("two", opened.id), 0, &prefixes)).await.unwrap();
        assert_eq!(database.find_by_chat("c", &prefixes).await.unwrap(), None, "{place:?}");
        close(database).await;
    }
}

#[tokio::test]
async fn a_database_is_opened_by_its_keys_only() {
    let (_files, places) = places("encryption-keys").await;
    for place in places {
        let database = Database::open_with_keys(&place, &keys(&[1])).await.unwrap();
        store_everything(&database).await;
        close(database).await;
        let id = keys(&[1]).ids();
        let missing = format!(
            "the database is encrypted with the key {id}, and the configuration names no key: set `encryption-key-from` or \
             `encryption-key-file` in [store]"
        );
        let other = format!(
            "the database is encrypted with the key {id}, and the configuration has other keys ({}): add that key after \
             the first one",
            keys(&[2]).ids()
        );
        for (given, expected) in [(EncryptionKeys::default(), &missing), (keys(&[2]), &other)] {
            let opened = Database::open_with_keys(&place, &given).await;
            assert_eq!(&opened.unwrap_err().to_string(), expected);
            let read = Database::read_with_keys(&place, &given).await;
            assert_eq!(&read.unwrap_err().to_string(), expected);
        }
        let reader = Database::read_with_keys(&place, &keys(&[1])).await.unwrap();
        assert!(reader.read_journal("c", "one").await.unwrap().is_some());
        close(reader).await;

        // A new key goes before the old one, which is removed after everything was encrypted again.
        let database = Database::open_with_keys(&place, &keys(&[2, 1])).await.unwrap();
        check_everything(&database).await;
        assert_eq!(database.encrypt_all(false, false, &mut |_, _| true).await.unwrap().encrypted, 7);
        close(database).await;
        let database = Database::open_with_keys(&place, &keys(&[2])).await.unwrap();
        check_everything(&database).await;
        close(database).await;
        assert!(matches!(
            Database::open_with_keys(&place, &keys(&[1])).await,
            Err(DatabaseError::EncryptionKeyOther { .. })
        ));
    }
}

#[tokio::test]
async fn an_interrupted_run_is_continued() {
    let files = TestDatabases::new("encryption-interrupted");
    let [_, place] = files.addresses();
    let database = Database::open(&place).await.unwrap();
    store_everything(&database).await;
    close(database).await;
    let database = Database::open_with_keys(&place, &keys(&[1])).await.unwrap();
    let report = database.encrypt_all(false, true, &mut |_, _| false).await.unwrap();
    assert!(!report.is_complete && report.encrypted > 0, "{report:?}");
    check_everything(&database).await;
    close(database).await;
    let database = Database::open_with_keys(&place, &keys(&[1])).await.unwrap();
    assert!(database.is_partly_encrypted());
    assert!(database.encrypt_all(false, true, &mut |_, _| true).await.unwrap().is_complete);
    close(database).await;
    let database = Database::open_with_keys(&place, &keys(&[1])).await.unwrap();
    check_everything(&database).await;
}

/// A run that ended before it overwrote the free pages of a file leaves that to the next one, which finds no row to
/// encrypt.
#[tokio::test]
async fn free_pages_are_overwritten_by_a_later_run() {
    let files = TestDatabases::new("encryption-free-pages");
    let [_, place] = files.addresses();
    let database = Database::open(&place).await.unwrap();
    store_everything(&database).await;
    close(database).await;
    for (overwrites, encrypted) in [(false, 7), (true, 0)] {
        let database = Database::open_with_keys(&place, &keys(&[1])).await.unwrap();
        let report = database.encrypt_all(false, overwrites, &mut |_, _| true).await.unwrap();
        assert_eq!((report.encrypted, report.is_complete), (encrypted, true));
        close(database).await;
        let stored = read_files(place.file().unwrap());
        assert_eq!(has_marker(&stored), !overwrites);
    }
}

/// What an operation that needs the altered value returns.
async fn read_after_change(database: &Database, column: ContentColumn) -> Result<(), DatabaseError> {
    match column {
        ContentColumn::TurnInputs | ContentColumn::ConversationKey => {
            database.read_journal("c", "one").await.map(drop)?;
            database.open_conversation(("c", "one"), "b", "k", 0).await?;
            database.release_lease("c", "one").await
        }
        ContentColumn::TenantRecord => database.tenant("t").await.map(drop),
        ContentColumn::ShownText | ContentColumn::ShownLabel => database.shown_texts("c", 0).await.map(drop),
        ContentColumn::QuestionContent => database.question("q").await.map(drop),
        ContentColumn::GrantContent => database.lasting_grant("g").await.map(drop),
        ContentColumn::LookupKey => Ok(()),
    }
}

#[tokio::test]
async fn values_that_were_altered_or_moved_are_noticed() {
    let (_files, places) = places("encryption-altered").await;
    for (number, place) in places.into_iter().enumerate() {
        for column in ContentColumn::ALL {
            let (table, name) = column.name().split_once('.').unwrap();
            // The last character before the padding, the nonce, the key, the form; a text that is not encrypted; and
            // the sealed value of another row.
            for change in [
                format!(
                    "UPDATE {table} SET {name} = substr({name}, 1, length({name}) - 9) || 'AAAAAAA' || substr({name}, length({name}) - 1)"
                ),
                format!("UPDATE {table} SET {name} = substr({name}, 1, 21) || 'AAAA' || substr({name}, 26)"),
                format!("UPDATE {table} SET {name} = 'fg1:0000000000000000' || substr({name}, 21)"),
                format!("UPDATE {table} SET {name} = substr({name}, 1, 40)"),
                format!("UPDATE {table} SET {name} = 'fg1:{}:%%%'", keys(&[1]).ids()),
                format!("UPDATE {table} SET {name} = '[]'"),
                format!("UPDATE {table} SET {name} = (SELECT key FROM conversations WHERE name = 'other')"),
            ] {
                let fresh = match &place {
                    DatabaseAddress::File(path) => {
                        let path = path.with_extension(format!("{}.db", random::unguessable_name().unwrap()));
                        DatabaseAddress::File(path)
                    }
                    // One database is enough for a server: each change is tried on a file.
                    other if change.ends_with("'[]'") => {
                        let test = format!("altered_{number}_{}", column.name().replace('.', "_"));
                        let Some(url) = create_database(&test).await else { continue };
                        let _ = other;
                        DatabaseAddress::Postgres(url)
                    }
                    _ => continue,
                };
                let database = Database::open_with_keys(&fresh, &keys(&[1])).await.unwrap();
                store_everything(&database).await;
                database.open_conversation(("c", "other"), "b", "k", 0).await.unwrap();
                close(database).await;
                let database = Database::open_with_keys(&fresh, &keys(&[1])).await.unwrap();
                read_after_change(&database, column).await.unwrap();
                assert!(database.execute_for_test(&change).await.unwrap() > 0, "{change}");
                close(database).await;
                let outcome = match Database::open_with_keys(&fresh, &keys(&[1])).await {
                    Ok(database) => {
                        let outcome = read_after_change(&database, column).await;
                        // The command finds it as well.
                        let found = database.encrypt_all(false, false, &mut |_, _| true).await;
                        assert_eq!(found.is_err(), outcome.is_err(), "{change}");
                        close(database).await;
                        outcome
                    }
                    Err(error) => Err(error),
                };
                let error = outcome.expect_err(&change);
                let is_clear = match &error {
                    DatabaseError::Unreadable(found) | DatabaseError::Unsealed(found) => {
                        *found == column.name()
                    }
                    DatabaseError::EncryptionKeyOther { .. } | DatabaseError::Damaged(_) => {
                        column == ContentColumn::LookupKey
                    }
                    _ => false,
                };
                assert!(is_clear && !error.to_string().contains('\n'), "{change}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn a_row_that_takes_the_place_of_another_is_noticed() {
    let files = TestDatabases::new("encryption-moved");
    let [_, place] = files.addresses();
    // Each change gives a value to another row by changing what identifies the row.
    for (change, column) in [
        ("UPDATE conversations SET name = 'two' WHERE name = 'one'", ContentColumn::ConversationKey),
        ("UPDATE conversations SET client = 'd' WHERE name = 'one'", ContentColumn::ConversationKey),
        ("UPDATE turns SET number = 5 WHERE number = 1", ContentColumn::TurnInputs),
        ("UPDATE tenants SET tenant = 'u'", ContentColumn::TenantRecord),
        ("UPDATE seen SET client = 'd'", ContentColumn::ShownText),
        ("UPDATE seen SET source = 'other'", ContentColumn::ShownText),
        ("UPDATE seen SET number = 7", ContentColumn::ShownText),
        ("UPDATE questions SET tenant = 'u'", ContentColumn::QuestionContent),
        ("UPDATE questions SET digest = 'e'", ContentColumn::QuestionContent),
        ("UPDATE questions SET id = 'r'", ContentColumn::QuestionContent),
        ("UPDATE lasting_grants SET client = 'd'", ContentColumn::GrantContent),
        ("UPDATE lasting_grants SET tenant = 'u'", ContentColumn::GrantContent),
        ("UPDATE identity SET id = 'another'", ContentColumn::LookupKey),
    ] {
        let path =
            place.file().unwrap().with_extension(format!("{}.db", random::unguessable_name().unwrap()));
        let fresh = DatabaseAddress::File(path);
        let database = Database::open_with_keys(&fresh, &keys(&[1])).await.unwrap();
        store_everything(&database).await;
        assert!(database.execute_for_test(change).await.unwrap() > 0, "{change}");
        close(database).await;
        let outcome = match Database::open_with_keys(&fresh, &keys(&[1])).await {
            Ok(database) => database.encrypt_all(false, false, &mut |_, _| true).await.map(drop),
            Err(error) => Err(error),
        };
        let error = outcome.expect_err(change);
        assert!(
            matches!(error, DatabaseError::Unreadable(found) if found == column.name()),
            "{change}: {error}"
        );
    }
}

/// An empty record of a tenant's labels means that nothing was written to the stores, with and without encryption.
#[tokio::test]
async fn an_empty_record_of_a_tenant_is_none() {
    for keys in [EncryptionKeys::default(), keys(&[1])] {
        let database = Database::open_with_keys(&DatabaseAddress::Memory, &keys).await.unwrap();
        let insert = "INSERT INTO tenants (tenant, version, record) VALUES ('t', 1, '')";
        assert_eq!(database.execute_for_test(insert).await.unwrap(), 1);
        assert_eq!(database.tenant("t").await.unwrap(), None);
    }
}

#[tokio::test]
async fn values_without_encryption_are_accepted_only_if_the_operator_says_so() {
    let database = Database::open_with_keys(&DatabaseAddress::Memory, &keys(&[1])).await.unwrap();
    store_everything(&database).await;
    database.execute_for_test("UPDATE tenants SET record = '[1]'").await.unwrap();
    let refused = database.encrypt_all(false, false, &mut |_, _| true).await;
    assert!(matches!(refused, Err(DatabaseError::Unsealed("tenants.record"))), "{refused:?}");
    assert_eq!(database.encrypt_all(true, false, &mut |_, _| true).await.unwrap().encrypted, 1);
    assert_eq!(database.encrypt_all(false, false, &mut |_, _| true).await.unwrap().encrypted, 0);
    // The row with the key of lookups was removed: the database does not pass for one that was never encrypted.
    let files = TestDatabases::new("encryption-row");
    let [_, place] = files.addresses();
    let database = Database::open_with_keys(&place, &keys(&[1])).await.unwrap();
    store_everything(&database).await;
    database.execute_for_test("DELETE FROM encryption").await.unwrap();
    close(database).await;
    // Each table with content shows it, also if the others are empty.
    for table in ["conversations", "tenants", "seen", "lasting_grants", "questions"] {
        let opened = Database::open_with_keys(&place, &keys(&[1])).await;
        assert!(matches!(opened, Err(DatabaseError::Damaged(_))), "{table}: {opened:?}");
        let database = Database::open(&place).await.unwrap();
        database.execute_for_test(&format!("DELETE FROM {table}")).await.unwrap();
        close(database).await;
    }
}

/// The columns that are stored as they are, by table: names, ids, digests, states, times, counts and limits.
const PLAIN: [&str; 12] = [
    "audit_logs: log key seq hash after",
    "changes: one last",
    "clients: client seen forgotten cleared",
    "conversations: id client name basis used holder held_until",
    "encryption: one",
    "freezes: kind what who since",
    "identity: one id began_empty",
    "lasting_grants: id client tenant basis who granted expires calls_a_day amount sum_a_day day calls sum",
    "probe: one content",
    "questions: id client name tenant digest state asked expires turn decided_by decided change granted lasting_grant basis approved_by",
    "seen: client number source kept characters",
    "turns: conversation number bytes",
];
/// The tables of which all columns are stored as they are, and that have nothing of a conversation.
const PLAIN_TABLES: [&str; 5] = ["_sqlx_migrations", "request_quotas", "spending", "tools", "virtual_keys"];

#[tokio::test]
async fn every_column_is_encrypted_keyed_or_known_to_have_no_content() {
    let database = Database::open(&DatabaseAddress::Memory).await.unwrap();
    let sql = "SELECT m.name, p.name FROM sqlite_master m JOIN pragma_table_info(m.name) p \
               WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY 1, 2";
    let sealed = ContentColumn::ALL.map(ContentColumn::name);
    let keyed = DigestColumn::ALL.map(DigestColumn::name);
    let mut count = 0;
    for row in &mut database.query_for_test(sql).await.unwrap() {
        let (table, column) = (row.text(0).unwrap(), row.text(1).unwrap());
        let full = format!("{table}.{column}");
        let plain = PLAIN.iter().filter_map(|row| row.split_once(": "));
        let is_plain = plain
            .into_iter()
            .any(|(name, columns)| name == table && columns.split(' ').any(|plain| plain == column));
        let is_digest =
            ["turns.prefixes", "prefixes.client", "prefixes.conversation"].contains(&full.as_str());
        let kinds = [
            sealed.contains(&full.as_str()),
            keyed.contains(&full.as_str()),
            is_digest,
            is_plain,
            PLAIN_TABLES.contains(&table.as_str()),
            // Its text was never content.
            ["tenants.tenant", "tenants.version"].contains(&full.as_str()),
        ];
        assert_eq!(kinds.iter().filter(|kind| **kind).count(), 1, "{full}: encrypt it, or list it");
        count += 1;
    }
    assert!(count > 70, "{count}");
}
