//! Finds names of people and places: names after a title or an introduction ("my name is"), and names in short built-in
//! lists of given names, countries and large cities. `personal` adds these findings to the other personal data.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;

use crate::Finding;
use crate::pattern::DisjointFindings;

/// Returns people and places in a text, as far as the lists cover them: kinds `PERSON` and `LOCATION`.
///
/// A person is a capitalised word after a title or after "my name is", or a common given name with the capitalised
/// words after it. A given name that is also a common word ("Mark", "Grace") needs a surname. A place is in a list of
/// countries and large cities. Where two findings overlap, a name after a title or introduction takes precedence over a
/// listed given name, and a person over a place.
pub fn names(text: &str) -> Vec<Finding> {
    let mut findings = DisjointFindings::default();
    // `WORD`, `INTRODUCTION` and `PLACES` are `None` if they do not compile.
    let words: Vec<Range<usize>> =
        WORD.iter().flat_map(|word| word.find_iter(text)).map(|w| w.range()).collect();
    // A capitalised word directly after a title or an introduction is a name.
    let introduced = INTRODUCTION.iter().flat_map(|phrase| phrase.find_iter(text)).map(|phrase| phrase.end());
    for at in introduced {
        let index = words.partition_point(|word| word.start < at);
        if words.get(index).is_some_and(|word| word.start == at) {
            findings.insert(Finding { kind: "PERSON", span: name_span(text, &words, index) });
        }
    }
    for (i, word) in words.iter().enumerate() {
        let given = without_genitive(text.get(word.clone()).unwrap_or_default());
        // The list may contain only the first part of a double name such as `Anna-Maria`.
        let first_part = given.split('-').next().unwrap_or_default();
        let span = name_span(text, &words, i);
        // The name is longer than its first word.
        let has_surname = span.len() != given.len();
        if is_listed(&GIVEN, given)
            || given != first_part && is_listed(&GIVEN, first_part)
            || is_listed(&AMBIGUOUS, given) && has_surname
        {
            findings.insert(Finding { kind: "PERSON", span });
        }
    }
    for place in PLACES.iter().flat_map(|places| places.find_iter(text)) {
        // A place counts only as whole words, and not as a part of an address.
        let continues_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '@');
        let is_separate = !text.get(..place.start()).unwrap_or_default().ends_with(continues_word)
            && !text.get(place.end()..).unwrap_or_default().starts_with(continues_word);
        if is_separate {
            findings.insert(Finding { kind: "LOCATION", span: place.range() });
        }
    }
    findings.into_vec()
}

/// Returns the bytes of the name that begins with the word at index `first`: that word and up to three capitalised
/// words after single spaces. Words such as `Monday` or `Ltd`, which are no surnames, end it, and a final `'s` is not
/// part of it. `words` are the capitalised words of the text. Returns an empty range if there is no word at `first`.
fn name_span(text: &str, words: &[Range<usize>], first: usize) -> Range<usize> {
    let Some(Range { start, mut end }) = words.get(first).cloned() else { return 0..0 };
    for word in words.iter().skip(first + 1).take(3) {
        if text.get(end..word.start) != Some(" ")
            || text.get(word.clone()).is_some_and(|w| is_listed(&NO_SURNAME, w))
        {
            break;
        }
        end = word.end;
    }
    start..start + without_genitive(text.get(start..end).unwrap_or_default()).len()
}

/// Returns a word without a final `'s`.
fn without_genitive(word: &str) -> &str {
    word.strip_suffix("'s").or_else(|| word.strip_suffix("’s")).unwrap_or(word)
}

/// Returns whether a sorted list contains a word.
fn is_listed(list: &LazyLock<Vec<&'static str>>, word: &str) -> bool {
    list.binary_search(&word).is_ok()
}

/// Returns the words of a list in alphabetical order, for a binary search. `text` has them separated by white space.
fn sorted(text: &'static str) -> Vec<&'static str> {
    let mut words: Vec<_> = text.split_ascii_whitespace().collect();
    words.sort_unstable();
    words
}

/// A capitalised word.
static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\b\p{Lu}[\p{Ll}\p{M}]+(?:['’-]?\p{Lu}?\p{Ll}+)*|\b[OD]['’]\p{Lu}\p{Ll}+").ok()
});

/// The words before a name.
static INTRODUCTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"\b(?:(?:Mr|Mrs|Ms|Mx|Dr|Prof|Sr|Sra|Mme)\.? |(?:Miss|Sir|Lady|Professor|Doctor|Herr|Frau|Monsieur|Madame|Señora?|Signora?) ",
        r"|(?i:my name is|i am called|call me|name:|signed by|yours sincerely,|(?:best|kind) regards,)\s)",
    ))
    .ok()
});

/// The given names, sorted for a binary search.
static GIVEN: LazyLock<Vec<&'static str>> = LazyLock::new(|| sorted(GIVEN_NAMES));
/// The given names that are also words, sorted for a binary search.
static AMBIGUOUS: LazyLock<Vec<&'static str>> = LazyLock::new(|| sorted(AMBIGUOUS_NAMES));
/// The words that end a name, sorted for a binary search.
static NO_SURNAME: LazyLock<Vec<&'static str>> = LazyLock::new(|| sorted(NO_SURNAMES));
/// The searcher for the names of places; of overlapping names, it finds the longest one.
static PLACES: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let places = PLACE_NAMES.split([',', '\n']).map(str::trim).filter(|place| !place.is_empty());
    AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(places).ok()
});

/// Given names that are common somewhere and are rarely another word.
const GIVEN_NAMES: &str = "\
Aaron Abdul Abigail Adam Adriana Adrian Agnes Ahmed Aisha Alan Albert Alejandro Aleksander Alessandro Alex Alexander
Alexandra Alexei Alfred Ali Alice Alicia Alina Alison Amanda Amelia Amina Amir Amit Amy Ana Anastasia Andre Andrea
Andreas Andrew Andrey Andrzej Angela Anil Anita Anja Anjali Ann Anna Anne Annika Anthony Anton Antonio Arjun Arthur
Ashley Astrid Barbara Bartosz Beatrice Benjamin Bernard Bernd Beth Bjorn Bob Boris Brenda Brian Bridget Bruno Camille
Carla Carlos Carmen Carol Caroline Catherine Cecilia Charles Charlie Charlotte Chiara Chloe Chris Christina Christine
Christoph Christopher Cindy Claire Clara Claudia Colin Cynthia Daniel Daniela Danielle Darren David Deborah Deepak
Denise Dennis Derek Diana Diego Dieter Dimitri Dmitri Dominic Donald Donna Dorothy Douglas Dylan Edith Edward Eileen
Elena Elif Elisabeth Elizabeth Ella Ellen Elsa Emil Emily Emma Enrique Eric Erica Erik Ernst Esther Ethan Eugene Eva
Evelyn Fabio Fatima Felix Fernando Fiona Florian Francesca Francesco Francis Francisco Frederick Friedrich Fritz
Gabriel Gabriela Gareth Gary Geoffrey George Gerald Gerhard Gianni Giovanni Giulia Giuseppe Gloria Gordon Greg Gregory
Greta Guillaume Gustav Hannah Hans Harold Harry Hassan Heather Hector Heidi Heinrich Heinz Helen Helena Helga Henri
Henrik Henry Hiroshi Howard Hugo Ian Ibrahim Igor Ines Ingrid Irene Irina Isaac Isabel Isabella Ivan Jacob Jacqueline
Jakub James Jamie Jan Jane Janet Janice Jason Javier Jean Jeffrey Jennifer Jens Jeremy Jerome Jessica Joan Joanna
Johan Johann Johannes John Johnny Jonas Jonathan Jorge Jose José Joseph Joshua Joyce Juan Juanita Judith Judy Julia
Julian Julie Jürgen Justin Karen Karin Karl Katarzyna Kate Katharina Katherine Kathleen Kathryn Katja Kavita Keith
Kelly Ken Kenji Kenneth Kevin Khalid Kim Kiran Klaus Kristina Krzysztof Kumar Kyle Lars Laura Lauren Laurent Leah Lena
Leon Leonard Leonardo Leticia Liam Lily Linda Lisa Lorenzo Louis Louise Luca Lucas Lucia Lucy Luigi Luis Lukas Lydia
Magda Magdalena Mahmoud Malgorzata Manuel Marcel Marco Marcus Margaret Maria Mariam Marie Marina Mario Marion Marta
Martha Martin Mary Mateusz Matteo Matthew Matthias Maurice Megan Mehmet Mei Melanie Melissa Michael Michel Michelle
Miguel Mikhail Mohamed Mohammed Molly Monica Muhammad Mustafa Nadia Nancy Naomi Natalia Natalie Natasha Nathan Neha
Neil Nguyen Nicholas Nicolas Nicole Nigel Nikita Nikolai Nina Noah Nora Olaf Olga Oliver Olivia Omar Oscar Oskar Otto
Pablo Pamela Paolo Patricia Patrick Paul Paula Pauline Pavel Pedro Penelope Peter Petra Philip Philippe Pierre Piotr
Pooja Priya Rachel Rafael Rahul Raj Rajesh Ralph Ramesh Raymond Rebecca Regina Reinhard Renate Ricardo Richard Rita
Robert Roberto Rodrigo Roger Rohan Roland Ronald Rosa Rosemary Russell Ruth Ryan Sabine Sally Salvador Samantha Samir
Samuel Sandeep Sandra Sanjay Sara Sarah Sean Sebastian Sergei Sergio Sharon Sheila Shirley Simon Simone Sofia Sonia
Sophia Sophie Stefan Stella Stephanie Stephen Steve Steven Stuart Sunil Susan Susanne Suzanne Svetlana Sven Sylvia
Takashi Tamara Tanya Tatiana Teresa Theodore Theresa Thomas Tim Timothy Tobias Tom Tomasz Tony Tracy Ulrich Ursula
Valentina Valerie Vanessa Vera Veronica Vijay Vikram Vincent Vincenzo Viktor Vladimir Walter Wanda Wei Wendy Werner
Wilhelm William Wolfgang Xavier Yasmin Ying Yolanda Yoko Yuki Yuri Yusuf Yvonne Zainab Zoe";

/// Given names that are also words: they count only with a surname.
const AMBIGUOUS_NAMES: &str = "\
Ada Amber Angel April Art August Autumn Bill Carter Chase Christian Chuck Crystal Dale Daisy Dawn Dean Drew Earl Eve
Faith Frank Gene Ginger Glen Grace Grant Hazel Heath Holly Hope Hunter Iris Ivy Jack Jade Jasmine Jay Jim Joe Jordan
Joy June Lance Mark Mason Max May Melody Miles Nick Olive Paris Parker Pat Pearl Penny Pierce Rich Rob Robin Rose Ruby
Sam Sandy Scott Stone Sue Summer Sydney Taylor Ted Terry Tucker Victor Victoria Violet Ward Will Wade";

/// Capitalised words that end a name.
const NO_SURNAMES: &str = "\
A An And Are As At But By Can For From Has He Her His How I If In Is It Its My No Not Of On Or Our She So That The Their
They This To Was We What When Where Who Why Will With You Your Inc Ltd GmbH LLC Corp Monday Tuesday Wednesday Thursday
Friday Saturday Sunday January February March April May June July August September October November December";

/// Countries, capitals and large cities, without those whose name is mostly another word.
const PLACE_NAMES: &str = "\
Afghanistan, Albania, Algeria, Andorra, Angola, Argentina, Armenia, Australia, Austria, Azerbaijan, Bahamas, Bahrain,
Bangladesh, Barbados, Belarus, Belgium, Belize, Benin, Bhutan, Bolivia, Botswana, Brazil, Brunei, Bulgaria, Burundi,
Cambodia, Cameroon, Canada, Chile, China, Colombia, Congo, Costa Rica, Croatia, Cuba, Cyprus, Czech Republic, Czechia,
Denmark, Dominican Republic, Ecuador, Egypt, El Salvador, England, Estonia, Ethiopia, Fiji, Finland, France, Gabon,
Gambia, Germany, Ghana, Greece, Greenland, Guatemala, Guinea, Guyana, Haiti, Honduras, Hungary, Iceland, India,
Indonesia, Iran, Iraq, Ireland, Israel, Italy, Ivory Coast, Jamaica, Japan, Kazakhstan, Kenya, Kosovo, Kuwait,
Kyrgyzstan, Laos, Latvia, Lebanon, Lesotho, Liberia, Libya, Liechtenstein, Lithuania, Luxembourg, Madagascar, Malawi,
Malaysia, Maldives, Malta, Mauritius, Mexico, Moldova, Monaco, Mongolia, Montenegro, Morocco, Mozambique, Myanmar,
Namibia, Nepal, Netherlands, New Zealand, Nicaragua, Nigeria, North Korea, North Macedonia, Northern Ireland, Norway,
Oman, Pakistan, Palestine, Panama, Papua New Guinea, Paraguay, Peru, Philippines, Poland, Portugal, Puerto Rico, Qatar,
Romania, Russia, Rwanda, Saudi Arabia, Scotland, Senegal, Serbia, Sierra Leone, Singapore, Slovakia, Slovenia, Somalia,
South Africa, South Korea, South Sudan, Spain, Sri Lanka, Sudan, Suriname, Sweden, Switzerland, Syria, Taiwan,
Tajikistan, Tanzania, Thailand, Tibet, Togo, Tunisia, Turkmenistan, Uganda, Ukraine, United Arab Emirates,
United Kingdom, United States, Uruguay, Uzbekistan, Venezuela, Vietnam, Yemen, Zambia, Zimbabwe,
Abu Dhabi, Accra, Addis Ababa, Algiers, Amman, Amsterdam, Ankara, Antwerp, Athens, Atlanta, Auckland, Baghdad, Baku,
Bangalore, Bangkok, Barcelona, Basel, Beijing, Beirut, Belfast, Belgrade, Bengaluru, Berlin, Bern, Birmingham, Bogotá,
Bordeaux, Boston, Brasília, Bratislava, Brisbane, Bristol, Brussels, Bucharest, Budapest, Buenos Aires, Cairo,
California, Calgary, Cape Town, Caracas, Casablanca, Chennai, Chicago, Cologne, Colombo, Copenhagen, Dakar, Dallas,
Damascus, Delhi, Denver, Detroit, Dhaka, Doha, Dortmund, Dresden, Dubai, Dublin, Düsseldorf, Edinburgh, Florida,
Frankfurt, Geneva, Glasgow, Gothenburg, Guangzhou, Hamburg, Hanoi, Havana, Helsinki, Ho Chi Minh City, Hong Kong,
Houston, Hyderabad, Istanbul, Jakarta, Jerusalem, Johannesburg, Kabul, Karachi, Kathmandu, Khartoum, Kigali, Kinshasa,
Kolkata, Krakow, Kuala Lumpur, Kyiv, Kyoto, Lagos, Lahore, Las Vegas, Leeds, Leipzig, Lima, Lisbon, Liverpool, London,
Los Angeles, Luanda, Lyon, Madrid, Manchester, Manila, Marseille, Melbourne, Mexico City, Miami, Milan, Minsk, Montreal,
Moscow, Mumbai, Munich, München, Nairobi, Naples, New Delhi, New York, Nicosia, Osaka, Oslo, Ottawa, Paris, Perth,
Philadelphia, Phoenix, Prague, Pretoria, Quito, Rabat, Reykjavik, Riga, Rio de Janeiro, Riyadh, Rome, Rotterdam,
San Diego, San Francisco, San José, Santiago, São Paulo, Sarajevo, Seattle, Seoul, Seville, Shanghai, Shenzhen, Sofia,
Stockholm, Stuttgart, Sydney, Taipei, Tallinn, Tashkent, Tbilisi, Tehran, Tel Aviv, Texas, Tirana, Tokyo, Toronto,
Toulouse, Tripoli, Tunis, Turin, Valencia, Vancouver, Venice, Vienna, Vilnius, Warsaw, Washington, Wellington,
Yerevan, Zagreb, Zürich, Zurich";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_places() {
        let check = |text: &str, expected: &[(&str, &str)]| {
            let found = names(text);
            let found: Vec<_> = found.iter().map(|f| (f.kind, text.get(f.span.clone()).unwrap())).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("Hey Bob nice to meet you!", &[("PERSON", "Bob")]);
        check("Mr. Quux and Mrs Dalloway", &[("PERSON", "Quux"), ("PERSON", "Dalloway")]);
        check("Mark the task; Mark Miller did", &[("PERSON", "Mark Miller")]);
        check("Anna's mail from Rome", &[("PERSON", "Anna"), ("LOCATION", "Rome")]);
        check("offices in New York and Newark", &[("LOCATION", "New York")]);
        check("Romeo sleeps", &[]);
        check("What a wonderful day today", &[]);
    }
}
