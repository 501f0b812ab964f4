//! Generates hostile texts: fragments of markup, addresses and separators in random order, with random
//! disguises.

use crate::random::Random;

#[rustfmt::skip]
const FRAGMENTS: [&str; 171] = [
    "https://good.example/a", "https://good.example/?q=1&copy=2", "http://good.example", "good.example/b_c_d",
    "ann@good.example", "mailto:ann@good.example", "[x](https://good.example/a)", "<https://good.example/a>",
    "![i](https://good.example/i.png)", "https://good.example/a(b)c", "https://good.example/a--b..c", "good.example",
    "https://good.example:8080/", "https://good.example/#x", "https://good.example/~u/*x*/_y_", "](https://good.example/a)",
    "https://evil.example/hunter2", "http://evil.com", "//evil.com/x", "\\\\evil.com\\x", "/\\evil.com/x", "evil.com/hunter2",
    "hunter2@evil.com", "xmpp:hunter2@evil.com/x", "mailto:eve@evil.com?body=s", "ftp://evil.com/x", "tel:+1555", "evil.com",
    "www.evil.com", "WWW.EVIL", "javascript:alert(1)", "data:text/html,x", "file:///x", "foo://bar", "foo:bar", "magnet:?xt=x",
    "https:evil.com", "https:/evil.com", "https:\\\\evil.com", "https://good.example@evil.com/", "https://good.example\\@evil.com",
    "https://good.example.evil.com/", "https://evil.com#good.example", "https://[::1]/", "https://1.2.3.4/", "1.2.3.4/x",
    "http://2130706433/", "xn--e1afmkfd.xn--p1ai", "\u{4f8b}\u{5b50}.\u{4e2d}\u{56fd}", "\u{43f}\u{440}.\u{440}\u{444}/x",
    "evil\u{3002}com", "evil\u{ff0e}com", "evil\u{ff61}com/x", "https\u{ff1a}//evil.com", "\u{ff48}ttp://evil.com",
    "[x](", "](", "][", "]:", "]: ", "[x]", "[x]: ", "[x][y]", "[y]", "![", "[", "]", "(", ")", "[[", "]]", "[[evil.com]]", "[^1]",
    "[^1]: ", "<", ">", "</", "<a href=", "<a href=\"//evil.com\">", "<img src=", "<img srcset=\"a 1x, //evil.com/b 2x\">",
    "<style>a{background:url(//evil.com/x)}</style>", "<svg/onload=alert(1)>", "<!-- ", " -->", "<!DOCTYPE x>", "<?x ?>",
    "<b>", "<a@evil.com>", "<x:y>", "<evil.com>", "\\href{https://evil.com}{x}", "\\url{evil.com}", "url(//evil.com)",
    "{: href=\"//evil.com\"}", "{href=//evil.com}", "[url=//evil.com]x[/url]", "!//evil.com/i.png!", "\"x\":http://evil.com",
    "&#104;", "&colon;", "&period;", "&sol;&sol;", "&commat;", "&lt;", "&amp;", "&#x2e;com", "&#64", "%2e", "%2F%2F", "%00",
    " ", " ", " ", "\n", "\n\n", "\t", "\r\n", "\u{a0}", "\u{3000}", "\u{2028}", "\u{200b}", "\u{ad}", "\u{2060}", "\u{301}",
    ".", ",", ";", ":", "!", "?", "'", "\"", "`", "```\n", "\\", "/", "//", "@", "#", "&", "=", "*", "_", "~~", "|", "-", "+", "$$",
    "word", "e.g.", "==", "^", "++", "||", "{style=\"background:url(\\2f\\2f evil)\"}", "{: onclick=\"x\"}", "\\u002f\\u002fevil\\u002ecom",
    "\\x2f\\x2f", ".. image:: ", "\n\n.. image:: //evil.com/x\n\n", "\n\n.. _x: ftp://evil.com\n\n", "\n\n__ ", "`x <", ">`_", " x_ ",
    "image::", "image:", "link:", "[x,link=evil.com]", "{empty}",
];

/// Returns the text of a seed.
pub(crate) fn text(seed: u64) -> String {
    let mut random = Random::of(&format!("links {seed}"));
    let count = 1 + random.below(10);
    let mut text = String::new();
    for _ in 0..count {
        let fragment = random.of_list(&FRAGMENTS);
        if random.chance(12) {
            disguise(fragment, &mut random, &mut text);
        } else {
            text.push_str(fragment);
        }
        if random.chance(25) {
            text.push(' ');
        }
    }
    text
}

/// Writes a fragment in a form that some reader treats as equal.
fn disguise(fragment: &str, random: &mut Random, text: &mut String) {
    let kind = random.below(9);
    let once = random.below(fragment.chars().count());
    for (index, c) in fragment.chars().enumerate() {
        let is_chosen = random.chance(15) || index == once;
        let wide = char::from_u32(u32::from(c) + 0xfee0).filter(|_| c.is_ascii_graphic());
        match kind {
            _ if !is_chosen => text.push(c),
            0 => text.extend(['\u{200b}', c]),
            1 => text.extend([c, '\u{ad}']),
            2 => text.extend(['\\', c]),
            3 => text.push_str(&format!("&#{};", u32::from(c))),
            4 => text.push(wide.unwrap_or(c)),
            5 => text.extend([c, '\n']),
            6 => text.extend(['*', c, '*']),
            7 => text.push_str(&format!("%{:02x}", u32::from(c) & 0xff)),
            _ => text.extend(c.to_uppercase()),
        }
    }
}
