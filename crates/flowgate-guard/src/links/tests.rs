//! Tests of the cleaned form of single texts: each hostile spelling of a link, and what becomes of it.

use super::*;

/// Permits one host and one mail address.
fn judge(url: &str) -> LinkDecision {
    let is_good = ["https://good.example/", "http://good.example/"].iter().any(|good| url.starts_with(good));
    if is_good || url == "mailto:ann@good.example" { LinkDecision::Permitted } else { LinkDecision::Refused }
}

fn cleaned(text: &str) -> String {
    clean(text, &mut judge).0
}

/// Texts without an address or a link stay unchanged.
#[test]
fn texts_that_lead_nowhere_stay() {
    for text in [
        "",
        "Ordinary words, e.g. these (or [those]); 3.14 at 12:30. Note: nothing happens!",
        "Node.js, v1.2.3, U.S., a.m., 5/6, and/or, R&D, AT&T, #1, @ann, a & b, 100%, C:\\x",
        "a < b, x <= y, x << 2, a -> b, <3",
        "// a comment, /// too, and std::vec, a[0], f(x), **bold**: _this_, `code`",
        "price: 3 \u{20ac}\u{a0}\u{2013} \u{201e}ok\u{201c}\u{2026} \u{4f60}\u{597d}\u{3002}\u{6211}\u{ff1a} \u{1f468}\u{200d}\u{1f469}",
        "1. one\n2. two\n\n- [ ] three\n| a | b |\n|---|---|\n",
        "x = 1, f(a=1, b==2), _private, __init__, cd .. && ls, :smile:, \\frac{a}{b}, x^2 + y|z, {name}, \\n, C:\\new",
    ] {
        assert_eq!(cleaned(text), text);
    }
}

/// Rows: a text with a permitted address, and the cleaned text. Cleaning again changes nothing.
#[test]
fn permitted_addresses_have_one_form() {
    for (text, expected) in [
        ("https://good.example", "https://good.example/"),
        ("(https://good.example/a).", "( https://good.example/a )."),
        ("x=https://good.example/a;y", "x= https://good.example/a%3By"),
        ("**https://good.example/a**", "** https://good.example/a **"),
        ("https://good.example/a(b)c", "https://good.example/a%28b%29c"),
        ("https://good.example/a(b", "https://good.example/a (b"),
        ("https://good.example/a\u{201d} b", "https://good.example/a \u{201d} b"),
        ("![i](https://good.example/i.png) b", "![i]( https://good.example/i.png ) b"),
        ("[x](<https://good.example/a>)", "[x]( https://good.example/a )"),
        ("[x]( https://good.example/a )", "[x]( https://good.example/a )"),
        ("[x](https://good.example/a){: href=b}", "[x]( https://good.example/a ) {: href =b}"),
        ("[x](https://good.example/a\u{301})", "[x] ( https://good.example/a \u{301})"),
        ("[x](https://good.example/a \"t\")", "[x] ( https://good.example/a \"t\")"),
        ("good.example", "https://good.example/"),
        ("http\u{ff1a}//good\u{3002}example/a", "http://good.example/a"),
        ("ht\u{ad}tps://good\u{200b}.example/a", "https://good.example/a"),
        ("https://good.example/a\nb", "https://good.example/a \nb"),
        ("https://good.example/a   \nb", "https://good.example/a \nb"),
        ("https://good.example/#evil.com", "https://good.example/#evil%2Ecom"),
        ("mail ann@good.example!", "mail ann@good.example !"),
        ("mailto:ann@good.example", "ann@good.example"),
    ] {
        assert_eq!(cleaned(text), expected, "{text}");
        assert_eq!(cleaned(expected), expected, "again");
    }
}

/// Rows: a text with refused addresses or with links, and the cleaned text. Cleaning again changes nothing.
#[test]
fn the_rest_is_broken_apart() {
    for (text, expected) in [
        (r"![x](https\://evil.example/?q=s)", r"![x] (hxxps\: / /evil .example/?q=s)"),
        (r"![x](/\evil.example/?q=s)", r"![x] (/ \evil .example/?q=s)"),
        (r"\\evil.example\share", r"\ \evil .example\share"),
        (r"https:\\evil.example", r"https : \ \evil .example"),
        ("<img src=\"//evil.example/i\">", "\u{2039}img src =\"/ /evil .example/i\">"),
        ("<img src=\"ht\ttps://evil.example/\">", "\u{2039}img src =\"ht\ttps: / /evil .example/\">"),
        ("&#104;ttps&colon;//evil&period;example", "& #104;ttps& colon;/ /evil& period;example"),
        ("www.evil.example", "www .evil .example"),
        ("www.intranet", "www .intranet"),
        ("[x][y]\n\n[y]: /a", "[x] [y]\n\n[y] : /a"),
        ("[[a]] [^1]", "[ [a]] [^1]"),
        ("HTTPS://EVIL.example", "HXXPS: / /EVIL .example"),
        ("e\u{200b}vil\u{ad}.com", "e\u{200b}vil \u{ad} .com"),
        ("\u{ff45}vil\u{ff0e}\u{ff43}om", "\u{ff45}vil \u{ff0e}\u{ff43}om"),
        ("\u{4f8b}\u{5b50}.\u{4e2d}\u{56fd}", "\u{4f8b}\u{5b50} .\u{4e2d}\u{56fd}"),
        ("x.xn--p1ai x.\u{440}\u{444}", "x .xn--p1ai x .\u{440}\u{444}"),
        ("1.2.3.4 2130706433/a", "1 .2 .3 .4 2130706433/a"),
        ("*_*1.2.3.4/x v**1.2.3.4**", "*_*1 .2 .3 .4/x v**1 .2 .3 .4**"),
        ("evil.com-x evil.com\u{306e}", "evil .com-x evil .com\u{306e}"),
        ("git@evil.com:a/b", "git @ evil .com: a/b"),
        ("data:text/html,x tel:+1 foo://bar foo:bar", "data : text/html,x tel : +1 foo: / /bar foo: bar"),
        ("https://u:p@good.example/", "hxxps: / /u:p @ good .example/"),
        ("https://good.example\\@evil.com", "hxxps: / /good .example \\ @ evil .com"),
        ("\u{1b}]8;;https://evil.com\u{7}x", " ]8;;hxxps: / /evil .com x"),
        (
            "href=.tel \u{1f600}.com \u{201d}.com www.\u{1f600} www.\u{201d}",
            "href = .tel \u{1f600} .com \u{201d} .com www .\u{1f600} www .\u{201d}",
        ),
        ("\u{ad}.data *.rs .com", "\u{ad} .data *.rs .com"),
        ("tel\u{ff1a}\u{ff01}x <\u{ff01}x", "tel \u{ff1a} \u{ff01}x \u{2039}\u{ff01}x"),
        ("a\u{ff1c}img", "a\u{2039}img"),
        ("ev*il.c*om http**s:**//evil.com ev_il.c_om", "ev*il .c*om hxxp**s:** / /evil .com ev_il .c_om"),
        (
            "**https://good.example/a** `https://good.example/b`",
            "** https://good.example/a ** ` https://good.example/b `",
        ),
        ("\\href{https://evil.com}{x}", "\\ href{hxxps: / /evil .com}{x}"),
        // Constructs whose renderers drop white space or decode escapes.
        (".. image:: //evil.com/x", ".. image: : / /evil .com/x"),
        (".. _x y: ftp://evil.com", ".. _ x y: ftp : / /evil .com"),
        (".. |x| image:: y", ".. | x| image: : y"),
        ("__ //evil.com", "_ _ / /evil .com"),
        ("`x < //evil.com>`_", "`x < / /evil .com>` _"),
        ("image::data:x[] image:x[]", "image: :data : x[] image: x[]"),
        ("*x*{style=\"background:url(\\2f\\2f x)\"}", "*x*{style =\"background: url (\\ 2f\\ 2f x)\"}"),
        ("{\"u\":\"\\u003ca href=\\u002f\\u002fevil\"}", "{\"u\":\"\\ u003ca href =\\ u002f\\ u002fevil\"}"),
        // Signs that some renderer drops.
        ("evil.==com== evil==.==com evil.c^o^m", "evil .==com== evil== .==com evil .c^o^m"),
        ("javascript==:==alert(1) ww^w^.evil", "javascript== : ==alert(1) ww^w^ .evil"),
        ("ps:\\'evi xmpp:::eve", "ps: \\ 'evi xmpp :::eve"),
    ] {
        let first = cleaned(text);
        assert_eq!(first, expected, "{text}");
        assert_eq!(cleaned(&first), first, "again");
    }
}

/// What is shown early is a prefix of the final text, however the text is split into pieces.
#[test]
fn early_text_is_a_prefix_of_the_final_text() {
    let long = format!("a {}.com/{} b", "x".repeat(5_000), "https://evil.example".repeat(300));
    for text in [
        "nothing leads anywhere here, and all but the last word may be shown",
        "see https://evil.example/?q=secret and more text behind it",
        "[x]( https://good.example/a ) and [x]( https://good.example/a and [x]( no )",
        "a picture ![x](//evil.example/) in the middle of a long text https://good.example/",
        "a < b, and `code`, and a back\\slash, and http without an address https://good.example/.",
        "w w ww www www. and h ht htt http https https: \u{4f60}\u{597d}\u{3002}evil\u{3002}com\u{ff0c}x",
        &long,
    ] {
        let whole = cleaned(text);
        for size in [1, 2, 3, 7, 1_000] {
            let chars: Vec<char> = text.chars().collect();
            let (mut cleaner, mut shown) = (Cleaner::default(), String::new());
            let mut live = StreamCleaner::with_policy(LinkPolicy::Some);
            let mut heard = String::new();
            for piece in chars.chunks(size) {
                let piece: String = piece.iter().collect();
                shown.push_str(&cleaner.push(&piece, &mut judge));
                heard.push_str(&live.push(&piece));
                assert!(whole.starts_with(&shown), "{shown}");
                assert!(whole.starts_with(&heard), "{heard}");
            }
            shown.push_str(&cleaner.finish(&mut judge));
            assert_eq!(shown, whole, "in pieces of {size}");
        }
    }
    let plain = "a text without anything that could lead anywhere";
    let mut live = StreamCleaner::with_policy(LinkPolicy::Some);
    assert_eq!(live.push(plain), plain.strip_suffix("anywhere").unwrap());
    assert_eq!(StreamCleaner::with_policy(LinkPolicy::Any).push("see https://"), "see https://");
    assert_eq!(
        StreamCleaner::with_policy(LinkPolicy::None).push("see https://a.com/ b"),
        "see hxxps: / /a .com/ "
    );
}

/// In a long text without spaces, at most one segment is held back, and each character is examined a bounded number of
/// times.
#[test]
fn long_texts_are_not_held_back() {
    for unit in
        ["x", "a.", "a@", "](", "http://", "/", "a+", "(", "&#", "\u{3002}", "<a", "a:", "[x](http://a"]
    {
        let text = unit.repeat(200_000 / unit.len());
        let (mut cleaner, mut shown) = (Cleaner::default(), 0);
        let mut given = 0;
        for piece in text.as_bytes().chunks(999) {
            let piece = String::from_utf8_lossy(piece).into_owned();
            given += piece.len();
            shown += cleaner.push(&piece, &mut judge).len();
            assert!(shown + 6_000 >= given, "{unit}: {shown} of {given}");
        }
    }
}
