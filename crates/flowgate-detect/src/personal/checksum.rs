//! Verifies the check digits of numbers that look like personal data: card numbers, bank accounts, national identity
//! numbers and addresses of Bitcoin. The table of patterns in `personal` names one function for each kind.
//!
//! Each public function takes the text that a pattern has matched, with its separators, and returns whether its check
//! digits are valid; [`iban_length`] returns a length instead.

/// Returns the decimal digits in a text.
fn digits(text: &str) -> Vec<u32> {
    text.chars().filter_map(|c| c.to_digit(10)).collect()
}

/// Returns the number that decimal digits spell. More digits than a `u64` holds give a meaningless number, not a panic.
fn number(digits: &[u32]) -> u64 {
    digits.iter().fold(0_u64, |n, digit| n.wrapping_mul(10).wrapping_add(u64::from(*digit)))
}

/// Returns the sum of the digits, each multiplied by the weight at its position. Digits without a weight are ignored.
fn weighted(digits: &[u32], weights: &[u32]) -> u32 {
    digits.iter().zip(weights).map(|(digit, weight)| digit * weight).sum()
}

/// Splits off the last `n` digits: returns the digits before them, and the number that the last `n` digits spell.
fn split(digits: &[u32], n: usize) -> (&[u32], u64) {
    let (body, check) = digits.split_at(digits.len().saturating_sub(n));
    (body, number(check))
}

/// Checks the Luhn digit of card numbers and some national numbers. Every second digit from the right is doubled and
/// replaced by the sum of its digits; then the sum of all digits must be a multiple of ten. Zeros alone are rejected,
/// although their sum is valid.
pub(super) fn luhn(text: &str) -> bool {
    let digits = digits(text);
    let double = |(i, digit): (usize, &u32)| match i % 2 {
        0 => *digit,
        _ if *digit > 4 => digit * 2 - 9,
        _ => digit * 2,
    };
    let sum: u32 = digits.iter().rev().enumerate().map(double).sum();
    sum.is_multiple_of(10) && digits.iter().any(|digit| *digit != 0)
}

/// Checks a card number: an issuer's prefix with its lengths, and the check digit.
pub(super) fn card(text: &str) -> bool {
    let digits = digits(text);
    // The number that the first `n` digits spell.
    let prefix = |n: usize| digits.get(..n).map_or(0, number);
    // Visa has 13, 16 or 19 digits, UnionPay 16 or 19, Diners Club 14, American Express 15, and Mastercard, JCB and
    // Discover 16.
    let issued = match digits.len() {
        13 | 19 => prefix(1) == 4 || digits.len() == 19 && prefix(2) == 62,
        14 => matches!(prefix(3), 300..=305) || matches!(prefix(2), 36 | 38 | 39),
        15 => matches!(prefix(2), 34 | 37),
        16 => {
            prefix(1) == 4
                || matches!(prefix(2), 51..=55 | 62 | 65)
                || matches!(prefix(4), 2221..=2720 | 3528..=3589 | 6011)
                || matches!(prefix(3), 644..=649)
        }
        _ => false,
    };
    issued && luhn(text)
}

/// Lengths of account numbers by country, from the register of ISO 13616.
const IBAN_LENGTHS: &str = "\
AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 EE20 EG29 ES24 FI18 FO18 \
FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 \
LY25 MC27 MD24 ME22 MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22 SA24 SC31 SD18 SE24 SI19 SK24 \
SM27 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20";

/// Returns the length in bytes of the account number (IBAN) at the start of a text. The number ends after as many
/// letters and digits as an IBAN of its country has; separators such as spaces do not count. Returns 0 if there is no
/// such country, if the text is too short, or if a letter or digit follows the number.
pub(super) fn iban_length(text: &str) -> usize {
    let country = text.get(..2).unwrap_or_default().to_ascii_uppercase();
    let row = IBAN_LENGTHS.split(' ').find_map(|row| row.strip_prefix(country.as_str()));
    let Some(length) = row.and_then(|length| length.parse::<usize>().ok()) else { return 0 };
    let mut characters = text.char_indices().filter(|(_, c)| c.is_ascii_alphanumeric());
    let end = characters.nth(length - 1).map_or(0, |(at, _)| at + 1);
    // A letter or digit directly after the number would belong to it.
    if text.get(end..).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric())) {
        0
    } else {
        end
    }
}

/// Checks an account number (IBAN): its length for its country, and the check digits of ISO 13616.
pub(super) fn iban(text: &str) -> bool {
    let values: Vec<u32> = text.chars().filter_map(|c| c.to_digit(36)).collect();
    // The first four characters move to the end, and a letter counts as a number of two digits. The remainder of this
    // number modulo 97 must be 1.
    let rotated = values.iter().skip(4).chain(values.iter().take(4));
    let rest = rotated.fold(0_u32, |rest, value| (rest * if *value > 9 { 100 } else { 10 } + value) % 97);
    iban_length(text) == text.len() && rest == 1
}

/// Checks the last letter of a Spanish identity number, which depends on the number modulo 23. The number is a DNI, or
/// a NIE, in which a first letter X, Y or Z represents the digit 0, 1 or 2.
pub(super) fn es_letter(text: &str) -> bool {
    // The digit that a first letter represents, at its place before the seven digits of a NIE.
    let head = match text.chars().next() {
        Some('Y') => 10_000_000,
        Some('Z') => 20_000_000,
        _ => 0,
    };
    let letter = text.chars().next_back();
    "TRWAGMYFPDXBNJZSQVHLCKE".chars().nth(((head + number(&digits(text))) % 23) as usize) == letter
}

/// Checks the last letter of an Italian codice fiscale. Characters at odd positions, counted from 1, have the values of
/// the official table `ODD`; the others have the value of the digit, or of the position in the alphabet.
pub(super) fn it_fiscal_code(text: &str) -> bool {
    const ODD: [u32; 26] =
        [1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23];
    // In base 36, letters have the values from 10 on; here they count from 0.
    let value = |c: char| c.to_digit(36).map_or(0, |v| if v > 9 { v - 10 } else { v });
    let sum: u32 = text
        .chars()
        .take(15)
        .enumerate()
        .map(|(i, c)| match i % 2 {
            0 => ODD.get(value(c) as usize).copied().unwrap_or(0),
            _ => value(c),
        })
        .sum();
    text.chars().nth(15).is_some_and(|c| value(c) == sum % 26)
}

/// Checks a Dutch BSN with the test of eleven: the weighted sum of the first eight digits modulo 11 is the last digit.
/// Numbers that begin with two zeros are not issued.
pub(super) fn nl_bsn(text: &str) -> bool {
    let digits = digits(text);
    let (body, check) = split(&digits, 1);
    digits.len() == 9
        && u64::from(weighted(body, &[9, 8, 7, 6, 5, 4, 3, 2])) % 11 == check
        && number(&digits) > 9_999_999
}

/// Checks the check digit of a Swiss AHV number, as in EAN-13: the digits, every second one times three, add up to a
/// multiple of ten.
pub(super) fn ch_ahv(text: &str) -> bool {
    let digits = digits(text);
    digits.len() == 13 && weighted(&digits, &[1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1]).is_multiple_of(10)
}

/// Checks the key of a French NIR, its last two digits: 97 minus the remainder of the number before them modulo 97. The
/// departments 2A and 2B of Corsica count as 19 and 18.
pub(super) fn fr_nir(text: &str) -> bool {
    let plain = text.replace("2A", "19").replace("2B", "18");
    let digits = digits(&plain);
    let (body, key) = split(&digits, 2);
    digits.len() == 15 && 97 - number(body) % 97 == key
}

/// Checks a German tax number. Among its first ten digits, exactly one digit occurs more than once, namely two or three
/// times. The last digit is the check digit of ISO 7064.
pub(super) fn de_tax_id(text: &str) -> bool {
    let digits = digits(text);
    let (body, check) = split(&digits, 1);
    let count = |n: u32| body.iter().filter(|digit| **digit == n).count();
    let repeated: Vec<usize> = (0..10).map(count).filter(|n| *n > 1).collect();
    // ISO 7064, MOD 11,10: each digit is added to the product so far modulo 10, where 0 counts as 10, and the sum is
    // doubled modulo 11.
    let product = body.iter().fold(10, |product, digit| {
        let sum = (digit + product) % 10;
        (if sum == 0 { 10 } else { sum }) * 2 % 11
    });
    digits.len() == 11 && matches!(repeated.as_slice(), [2 | 3]) && u64::from((11 - product) % 10) == check
}

/// Checks a Polish PESEL: the weighted sum of its digits is a multiple of ten, and the third and the fourth digit are a
/// month, to which a multiple of 20 is added for the century.
pub(super) fn pl_pesel(text: &str) -> bool {
    let digits = digits(text);
    let month = digits.get(2..4).map_or(0, number) % 20;
    digits.len() == 11
        && (1..=12).contains(&month)
        && weighted(&digits, &[1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1]).is_multiple_of(10)
}

/// Checks a number of the British National Health Service: the weighted sum of its ten digits is a multiple of 11.
pub(super) fn uk_nhs(text: &str) -> bool {
    let digits = digits(text);
    digits.len() == 10 && weighted(&digits, &[10, 9, 8, 7, 6, 5, 4, 3, 2, 1]).is_multiple_of(11)
}

/// Checks the two check digits of a Brazilian CPF. Eleven equal digits are not valid.
pub(super) fn br_cpf(text: &str) -> bool {
    let digits = digits(text);
    let digit = |n: usize| {
        // The first of the `n` digits has the weight `n` + 1, the last one 2.
        let weights: Vec<u32> = (2..=n as u32 + 1).rev().collect();
        weighted(digits.get(..n).unwrap_or_default(), &weights) * 10 % 11 % 10
    };
    digits.len() == 11
        && digits.get(9) == Some(&digit(9))
        && digits.get(10) == Some(&digit(10))
        && digits.iter().any(|d| Some(d) != digits.first())
}

/// Checks the last letter of a Singaporean NRIC or FIN, which depends on the first letter.
pub(super) fn sg_nric(text: &str) -> bool {
    let sum = weighted(&digits(text), &[2, 7, 6, 5, 4, 3, 2]);
    // Each series has its own letters. The series that began in 2000 (T and G) also add four to the sum.
    let (letters, offset) = match text.chars().next() {
        Some('S') => ("JZIHGFEDCBA", 0),
        Some('T') => ("JZIHGFEDCBA", 4),
        Some('F') => ("XWUTRQPNMLK", 0),
        Some('G') => ("XWUTRQPNMLK", 4),
        _ => return false,
    };
    letters.chars().nth(((sum + offset) % 11) as usize) == text.chars().next_back()
}

/// Checks the last character of a Finnish identity code, computed from the date and the running number modulo 31.
pub(super) fn fi_hetu(text: &str) -> bool {
    let body: Vec<u32> = digits(text).into_iter().take(9).collect();
    let check = "0123456789ABCDEFHJKLMNPRSTUVWXY".chars().nth((number(&body) % 31) as usize);
    body.len() == 9 && check == text.chars().next_back()
}

/// Checks a Swedish personnummer: the Luhn digit of its last ten digits, and the month and day in them.
pub(super) fn se_personnummer(text: &str) -> bool {
    let digits = digits(text);
    let short: String = digits
        .iter()
        .skip(digits.len().saturating_sub(10))
        .filter_map(|d| char::from_digit(*d, 10))
        .collect();
    let number_in = |range| number(&self::digits(short.get(range).unwrap_or_default()));
    // A coordination number, for residents without a personnummer, has 60 added to the day. Days from 32 to 60, which
    // no number has, are not excluded.
    short.len() == 10
        && (1..=12).contains(&number_in(2..4))
        && (1..=91).contains(&number_in(4..6))
        && luhn(&short)
}

/// Checks the last two digits of a Belgian national number: 97 minus the remainder of the number before them modulo 97.
/// For births from 2000 on, that number has a 2 before its nine digits in this calculation.
pub(super) fn be_nrn(text: &str) -> bool {
    let digits = digits(text);
    let (body, check) = split(&digits, 2);
    let body = number(body);
    digits.len() == 11 && (97 - body % 97 == check || 97 - (2_000_000_000 + body) % 97 == check)
}

/// Checks an Australian business number: after one is subtracted from the first digit, the weighted sum of the digits
/// is a multiple of 89.
pub(super) fn au_abn(text: &str) -> bool {
    let digits = digits(text);
    let sum = weighted(&digits, &[10, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19]);
    // The first digit has the weight 10, so one less in it is ten less in the sum.
    digits.len() == 11 && sum >= 10 && (sum - 10).is_multiple_of(89)
}

/// Checks an Australian tax file number: the weighted sum of its nine digits is a multiple of 11.
pub(super) fn au_tfn(text: &str) -> bool {
    let digits = digits(text);
    digits.len() == 9 && weighted(&digits, &[1, 4, 3, 7, 5, 8, 6, 9, 10]).is_multiple_of(11)
}

/// Checks the last digit of a South Korean resident registration number: 11 minus the weighted sum of the other digits
/// modulo 11, of which only the last digit counts. Numbers issued since late 2020 end in random digits and are not
/// found.
pub(super) fn kr_rrn(text: &str) -> bool {
    let digits = digits(text);
    let (body, check) = split(&digits, 1);
    let sum = weighted(body, &[2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5]);
    digits.len() == 13 && u64::from((11 - sum % 11) % 10) == check
}

/// Checks the check digit of an Indian Aadhaar number by Verhoeff's algorithm, over the dihedral group of order ten.
pub(super) fn verhoeff(text: &str) -> bool {
    // The product in the group: 0 to 4 are the rotations, 5 to 9 the reflections.
    let multiply = |a: u32, b: u32| match (a < 5, b < 5) {
        (true, true) => (a + b) % 5,
        (true, false) => 5 + (a + b) % 5,
        (false, true) => 5 + (a + 5 - b) % 5,
        (false, false) => (a + 5 - b) % 5,
    };
    // The permutation that Verhoeff applies to a digit. The number of times is the digit's position from the right,
    // counted from 0; the order of the permutation is eight.
    const STEP: [u32; 10] = [1, 5, 7, 6, 2, 8, 3, 0, 9, 4];
    let permute = |digit: u32, times: usize| {
        (0..times % 8).fold(digit, |d, _| STEP.get(d as usize).copied().unwrap_or(d))
    };
    let digits = digits(text);
    digits.len() == 12
        && digits.iter().rev().enumerate().fold(0, |c, (i, digit)| multiply(c, permute(*digit, i))) == 0
}

/// Checks the checksum of a segwit address of Bitcoin. For a valid address, the checksum is 1 (BIP 173) or `0x2bc830a3`
/// (BIP 350).
pub(super) fn bech32(text: &str) -> bool {
    const GENERATORS: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    // Adds a value of five bits to the checksum, as both standards prescribe.
    let step = |checksum: u32, value: u32| {
        let top = checksum >> 25;
        let next = (checksum & 0x01ff_ffff) << 5 ^ value;
        GENERATORS.iter().enumerate().fold(next, |n, (i, g)| if top >> i & 1 == 1 { n ^ g } else { n })
    };
    let lower = text.to_ascii_lowercase();
    let data: Option<Vec<u32>> = lower
        .chars()
        .skip(3)
        .map(|c| "qpzry9x8gf2tvdw0s3jn54khce6mua7l".find(c).map(|at| at as u32))
        .collect();
    // The prefix `bc` is hashed first: the high bits of its letters, a zero, and their low bits.
    let start = [3, 3, 0, 2, 3].into_iter().fold(1, step);
    lower.starts_with("bc1")
        && data.is_some_and(|data| matches!(data.into_iter().fold(start, step), 1 | 0x2bc8_30a3))
}

/// Checks that a text is an address of Bitcoin in base 58, by its length of 25 bytes, its version (0 or 5) and its
/// characters.
///
/// The checksum is a double SHA-256, which is not worth a dependency here; the other checks leave few false findings.
pub(super) fn base58_address(text: &str) -> bool {
    const ALPHABET: &str = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    // The number that the text spells in base 58, as 25 bytes. A carry out of the first byte means that it is longer.
    let mut bytes = [0_u32; 25];
    for c in text.chars() {
        let Some(value) = ALPHABET.find(c) else { return false };
        let mut carry = value as u32;
        for byte in bytes.iter_mut().rev() {
            carry += *byte * 58;
            *byte = carry & 0xff;
            carry >>= 8;
        }
        if carry != 0 {
            return false;
        }
    }
    // Each leading zero byte is spelled `1`. A real address mixes classes of characters; a long word does not.
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let ones = text.chars().take_while(|c| *c == '1').count();
    zeros == ones && matches!(bytes.first(), Some(0 | 5)) && character_class_count(text) == 3
}

/// Returns how many of the classes upper case, lower case and digits occur in a text.
fn character_class_count(text: &str) -> usize {
    let classes: [fn(&char) -> bool; 3] =
        [char::is_ascii_uppercase, char::is_ascii_lowercase, char::is_ascii_digit];
    classes.iter().filter(|class| text.chars().any(|c| class(&c))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_good_number_each_and_every_change_of_a_digit() {
        let check = |name: &str, good: &str, test: fn(&str) -> bool, slack: usize| {
            assert!(test(good), "{name} {good}");
            let mut passed = 0;
            for (i, c) in good.char_indices().filter(|(_, c)| c.is_ascii_digit()) {
                for other in ('0'..='9').filter(|other| *other != c) {
                    let mut changed = good.to_owned();
                    changed.replace_range(i..=i, &other.to_string());
                    passed += usize::from(test(&changed));
                }
            }
            assert!(passed <= slack, "{name}: {passed} changes pass");
        };
        check("card", "4111 1111 1111 1111", card, 0);
        check("iban", "GB82 WEST 1234 5698 7654 32", iban, 0);
        check("dni", "12345678Z", es_letter, 0);
        check("nie", "X1234567L", es_letter, 0);
        check("codice fiscale", "RSSMRA85T10A562S", it_fiscal_code, 0);
        check("bsn", "111222333", nl_bsn, 0);
        check("ahv", "756.9217.0769.85", ch_ahv, 0);
        check("nir", "255081416802538", fr_nir, 0);
        check("tax id", "86095742719", de_tax_id, 1);
        check("pesel", "44051401359", pl_pesel, 0);
        check("nhs", "943 476 5919", uk_nhs, 0);
        check("cpf", "529.982.247-25", br_cpf, 3);
        check("nric", "S1234567D", sg_nric, 0);
        check("hetu", "131052-308T", fi_hetu, 0);
        check("personnummer", "811218-9876", se_personnummer, 0);
        check("nrn", "85.07.30-033.28", be_nrn, 1);
        check("abn", "51 824 753 556", au_abn, 0);
        check("tfn", "123 456 782", au_tfn, 0);
        check("aadhaar", "2341 2341 2346", verhoeff, 0);
        check("bech32", "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4", bech32, 0);
        check("base 58", "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", base58_address, usize::MAX);
    }
}
