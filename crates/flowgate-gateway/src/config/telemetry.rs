//! Reads the section `[telemetry]`: the collector to which spans are sent, and the share of traces that are recorded. A
//! setting that the section leaves out is read from the environment variables of OpenTelemetry; without the section,
//! these variables have no effect. `config` calls it for the configuration file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Uri};
use flowgate_lm::remote::Authorities;

use super::ConfigReader;
use super::file::TelemetryTable;
use crate::secret::Secret;

/// The path of a collector that receives spans, below its base address.
const PATH: &str = "/v1/traces";
/// The default name of the service.
const SERVICE: &str = "flowgate";
/// The default and the longest time for a request to the collector.
const TIMEOUTS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));
/// The most headers of one request to the collector.
const MAX_HEADERS: usize = 16;
/// The headers that the HTTP client writes itself, so the operator cannot set them.
const RESERVED: [&str; 6] =
    ["content-encoding", "content-length", "content-type", "connection", "host", "transfer-encoding"];

/// Where spans go, and how many of them.
#[derive(Debug, Clone)]
pub struct TelemetrySpec {
    /// The address that receives spans.
    pub endpoint: String,
    /// The headers of each request to it.
    pub headers: Vec<(String, Secret)>,
    /// The certificate authorities that are trusted for it.
    pub authorities: Authorities,
    /// The time for a request to it.
    pub timeout: Duration,
    /// Whether requests are compressed.
    pub is_compressed: bool,
    /// The name of the gateway in OpenTelemetry's traces.
    pub service_name: String,
    /// Further attributes of the gateway.
    pub resource: BTreeMap<String, String>,
    /// The share of traces that are recorded, if the client does not say whether its trace is.
    pub sample: f64,
    /// Whether requests to upstreams and MCP servers say to which trace they belong.
    pub propagate: bool,
}

impl ConfigReader<'_> {
    /// Converts the section `[telemetry]` to settings; `None` if the environment turns all telemetry off. A problem
    /// of the section is an error even then.
    ///
    /// # Errors
    /// The first problem of the section or of a variable of OpenTelemetry, as a message for the operator.
    pub(super) fn telemetry(&self, table: TelemetryTable) -> Result<Option<TelemetrySpec>, String> {
        // Telemetry is turned off only at the end, so that a problem of the section is reported even then.
        let is_off = self.variable("OTEL_SDK_DISABLED").is_some_and(|off| off.eq_ignore_ascii_case("true"));
        let endpoint = self.endpoint(table.endpoint)?;
        let authorities = self.authorities_of("endpoint", &endpoint, table.ca_file.as_deref())?;
        let headers = self.headers(table.headers_from.as_deref(), table.headers_file.as_deref())?;
        let mut resource = BTreeMap::new();
        if let Some(attributes) = self.variable("OTEL_RESOURCE_ATTRIBUTES") {
            resource.extend(pairs(&attributes).map_err(|why| format!("OTEL_RESOURCE_ATTRIBUTES: {why}"))?);
        }
        // The section takes precedence over the environment, and `OTEL_SERVICE_NAME` over `service.name` in the other
        // variable.
        let named = resource.remove("service.name");
        let service_name = table.service_name.or_else(|| self.variable("OTEL_SERVICE_NAME")).or(named);
        let spec = TelemetrySpec {
            endpoint,
            headers,
            authorities,
            timeout: self.timeout()?,
            is_compressed: self.is_compressed()?,
            service_name: service_name.unwrap_or_else(|| SERVICE.to_owned()),
            resource,
            sample: self.sample(table.sample)?,
            propagate: table.propagate,
        };
        Ok((!is_off).then_some(spec))
    }

    /// Returns the value of an environment variable; an empty one counts as unset, as OpenTelemetry demands.
    fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name).filter(|value| !value.trim().is_empty())
    }

    /// Returns the name and the value of the first of these environment variables that is set.
    fn first_variable(&self, names: [&'static str; 2]) -> Option<(&'static str, String)> {
        names.into_iter().find_map(|name| Some((name, self.variable(name)?)))
    }

    /// Returns the address that receives spans. It is [`PATH`] below `configured`, the base address in the section.
    /// Without that, it is `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` unchanged, or [`PATH`] below
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`.
    ///
    /// # Errors
    /// If there is no address, the address is not valid, or the environment demands a protocol other than HTTP for it.
    fn endpoint(&self, configured: Option<String>) -> Result<String, String> {
        let below = |base: String| format!("{}{PATH}", base.trim_end_matches('/'));
        let (setting, address) = match configured {
            Some(base) => ("endpoint", below(base)),
            None => match self
                .first_variable(["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"])
            {
                Some((name @ "OTEL_EXPORTER_OTLP_ENDPOINT", base)) => (name, below(base)),
                Some((name, whole)) => (name, whole),
                None => {
                    return Err("the section has no `endpoint`: write endpoint = \"http://localhost:4318\", the address of the collector".to_owned());
                }
            },
        };
        // A protocol in the environment applies only to an address from the environment.
        if setting != "endpoint" {
            let protocol =
                self.first_variable(["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"]);
            if let Some((name, protocol)) = protocol.filter(|(_, protocol)| protocol != "http/protobuf") {
                return Err(format!(
                    "{name} is `{protocol}`, but this gateway sends http/protobuf: write the collector's address for http/protobuf as `endpoint`"
                ));
            }
        }
        let uri: Option<Uri> = address.parse().ok();
        let is_valid = uri.is_some_and(|uri| {
            let authority = uri.authority().map_or("", |authority| authority.as_str());
            matches!(uri.scheme_str(), Some("http" | "https"))
                && !authority.is_empty()
                && !authority.contains('@')
        });
        match is_valid {
            true => Ok(address),
            false => Err(format!(
                "{setting}: the address must begin with http:// or https:// and have a host, but no user name"
            )),
        }
    }

    /// Reads the headers of requests to the collector: from the variable or the file that the section names, otherwise
    /// from the variables of OpenTelemetry. Notes their values as keys, so that they are removed from logs.
    ///
    /// # Errors
    /// If there are too many headers, or one cannot be sent. The message quotes no value.
    fn headers(&self, variable: Option<&str>, file: Option<&Path>) -> Result<Vec<(String, Secret)>, String> {
        let (setting, text) = match self.key_named(("headers-from", variable), ("headers-file", file))? {
            Some(text) => ("headers", text),
            None => {
                let names = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
                let Some((name, text)) = self.first_variable(names) else { return Ok(Vec::new()) };
                (name, text)
            }
        };
        let headers = pairs(&text).map_err(|why| format!("{setting}: {why}"))?;
        if headers.len() > MAX_HEADERS {
            return Err(format!("{setting}: there are more than {MAX_HEADERS} headers: remove some"));
        }
        let mut read = Vec::new();
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            let is_valid = name.parse::<HeaderName>().is_ok() && HeaderValue::from_str(&value).is_ok();
            if !is_valid || RESERVED.contains(&name.as_str()) {
                // The message does not quote what may be a key.
                return Err(format!(
                    "{setting}: a header has a name or a value that cannot be sent: write NAME=VALUE,NAME=VALUE, \
                     without headers about the body and the connection"
                ));
            }
            // Of a value such as `Bearer KEY`, the last word is the key.
            let key = value.rsplit(' ').next().unwrap_or(&value);
            self.keys.borrow_mut().push(Secret::new(key));
            read.push((name, Secret::new(value)));
        }
        Ok(read)
    }

    /// Returns the time limit of a request to the collector: the milliseconds in an environment variable, but at most
    /// the longest time of [`TIMEOUTS`]; without the variable, the default.
    ///
    /// # Errors
    /// If the value of the variable is not a number above 0.
    fn timeout(&self) -> Result<Duration, String> {
        let (default, longest) = TIMEOUTS;
        let Some((name, value)) =
            self.first_variable(["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"])
        else {
            return Ok(default);
        };
        let millis = value.trim().parse().ok().filter(|millis| *millis > 0);
        let time = millis.map(Duration::from_millis);
        time.map(|time| time.min(longest)).ok_or_else(|| {
            format!("{name} is not a number of milliseconds above 0: set it to one, such as 10000")
        })
    }

    /// Returns whether requests to the collector are compressed: only if the environment says `gzip`.
    ///
    /// # Errors
    /// If the environment says anything but `gzip` or `none`.
    fn is_compressed(&self) -> Result<bool, String> {
        let names = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
        match self.first_variable(names) {
            None => Ok(false),
            Some((_, form)) if form == "gzip" => Ok(true),
            Some((_, form)) if form == "none" => Ok(false),
            Some((name, form)) => Err(format!(
                "{name} is neither `gzip` nor `none`, but `{}`: set it to one of them",
                form.escape_debug()
            )),
        }
    }

    /// Returns the share of traces that are recorded, from 0 to 1: `configured`, the share in the section. Without
    /// that, it is the share of the sampler that the variable `OTEL_TRACES_SAMPLER` names, or 1 if the variable is not
    /// set.
    ///
    /// # Errors
    /// If the share is not between 0 and 1, or the gateway does not have the sampler.
    fn sample(&self, configured: Option<f64>) -> Result<f64, String> {
        let is_share = |share: &f64| (0.0..=1.0).contains(share);
        if let Some(share) = configured {
            return is_share(&share).then_some(share).ok_or_else(|| {
                "sample: the share of traces is not between 0 and 1: write 0.1 for a tenth".to_owned()
            });
        }
        let Some(sampler) = self.variable("OTEL_TRACES_SAMPLER") else { return Ok(1.0) };
        match sampler.as_str() {
            "parentbased_always_on" => Ok(1.0),
            "parentbased_always_off" => Ok(0.0),
            "parentbased_traceidratio" => match self.variable("OTEL_TRACES_SAMPLER_ARG") {
                None => Ok(1.0),
                Some(share) => share.trim().parse().ok().filter(is_share).ok_or_else(|| {
                    "the environment variable OTEL_TRACES_SAMPLER_ARG is not a share of traces between 0 and 1: set it to 0.1 for a tenth".to_owned()
                }),
            },
            _ => Err(
                "OTEL_TRACES_SAMPLER is none of parentbased_always_on, parentbased_always_off and parentbased_traceidratio: write \
                 `sample` instead, a share between 0 and 1"
                    .to_owned(),
            ),
        }
    }
}

/// Parses a list in the form of OpenTelemetry's variables, `NAME=VALUE,NAME=VALUE`, and returns the names and the
/// values, whose percent-encoding is decoded. In a file, each pair may have a line of its own. Empty entries and spaces
/// around names and values are ignored.
///
/// # Errors
/// If an entry has another form. The message quotes nothing, because a value may be a key.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let parts = text.split([',', '\n']).map(str::trim).filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let name = name.trim();
        (!name.is_empty()).then_some((name.to_owned(), decoded(value.trim())?))
    };
    let wrong = || {
        "an entry does not have the form NAME=VALUE: write each entry in this form, with a percent-encoded value".to_owned()
    };
    parts.map(|part| pair(part).ok_or_else(wrong)).collect()
}

/// Decodes percent-encoding; `None` if the result is not UTF-8 or the encoding is broken.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(digit(rest.next()?)? * 16 + digit(rest.next()?)?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a section with these environment variables.
    fn read_section(section: &str, variables: &[(&str, &str)]) -> Result<Option<TelemetrySpec>, String> {
        let text = format!(
            "[upstreams.a]\nurl = \"http://127.0.0.1:1/v1\"\n[clients.a]\nkey-from = \"KEY\"\nupstream = \"a\"\npolicy = \"p.flow\"\n\
             [telemetry]\n{section}\n"
        );
        // One folder for each thread, as tests run in parallel.
        let thread = format!("{:?}", std::thread::current().id());
        let folder = std::env::temp_dir().join(format!("flowgate-telemetry-{}-{thread}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("p.flow"), "lattice integrity: trusted < untrusted\n").unwrap();
        std::fs::write(folder.join("headers"), "a=from-a-file\nb=two\n").unwrap();
        let environment = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found
                .map(|(_, value)| (*value).to_owned())
                .or((name == "KEY").then(|| "0123456789abcdef".to_owned()))
        };
        let read = super::super::read(&text, &folder, &environment);
        std::fs::remove_dir_all(&folder).unwrap();
        read.map(|config| config.telemetry).map_err(|error| error.to_string())
    }

    const ENDPOINT: &str = "endpoint = \"http://localhost:4318\"";

    #[test]
    fn the_section_wins_over_the_environment() {
        let check = |section: &str, variables: &[(&str, &str)], expected: &str| {
            let spec = read_section(section, variables).unwrap().unwrap();
            let headers: Vec<String> =
                spec.headers.iter().map(|(name, value)| format!("{name}={}", value.expose())).collect();
            let read = format!(
                "{} {} {} {:?} {} {:?} {} {}",
                spec.endpoint,
                headers.join(","),
                spec.service_name,
                spec.timeout,
                spec.sample,
                spec.resource,
                spec.propagate,
                if spec.is_compressed { "gzip" } else { "plain" }
            );
            assert_eq!(read, expected, "{section} {variables:?}");
            assert!(!format!("{spec:?}").contains("Bearer"), "{spec:?}");
        };
        check(ENDPOINT, &[], "http://localhost:4318/v1/traces  flowgate 10s 1 {} false plain");
        let all = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20key,x=1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=b,deployment.environment.name=test"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_SERVICE_NAME", ""),
        ];
        check(
            "",
            &all,
            "http://collector:4318/v1/traces authorization=Bearer key,x=1 b 2.5s 0.25 {\"deployment.environment.name\": \"test\"} false gzip",
        );
        let whole = [
            &[
                ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector/spans"),
                ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "y=2"),
                ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "99999999"),
                ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none"),
                ("OTEL_SERVICE_NAME", "c"),
            ][..],
            &all[..7],
        ]
        .concat();
        check(
            "propagate = true",
            &whole,
            "https://collector/spans y=2 c 60s 0.25 {\"deployment.environment.name\": \"test\"} true plain",
        );
        check(
            &format!("{ENDPOINT}\nheaders-file = \"headers\"\nservice-name = \"d\"\nsample = 0.5"),
            // The protocol of another address does not matter.
            &[&whole[..], &[("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")]].concat(),
            "http://localhost:4318/v1/traces a=from-a-file,b=two d 60s 0.5 {\"deployment.environment.name\": \"test\"} false plain",
        );
        let off = read_section(ENDPOINT, &[("OTEL_SDK_DISABLED", "TRUE")]).unwrap();
        assert!(off.is_none());
    }

    #[test]
    fn problems_are_named() {
        let check = |section: &str, variables: &[(&str, &str)], expected: &str| {
            let error = read_section(section, variables).unwrap_err();
            assert!(error.contains(expected), "{section} {variables:?}: {error}");
            assert!(!error.contains("SECRET"), "{error}");
        };
        let with = |more: &str| format!("{ENDPOINT}\n{more}");
        check("", &[], "telemetry: the section has no `endpoint`: write endpoint = ");
        for address in ["localhost:4318", "ftp://a", "http://", "http://user:SECRET@a", "http://a b"] {
            check(&format!("endpoint = \"{address}\""), &[], "telemetry: endpoint: the address must begin");
        }
        check(
            "",
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "a")],
            "telemetry: OTEL_EXPORTER_OTLP_ENDPOINT: the address",
        );
        let grpc =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
        check("", &grpc, "OTEL_EXPORTER_OTLP_PROTOCOL is `grpc`, but this gateway sends http/protobuf");
        check(
            &with("sample = 1.5"),
            &[],
            "telemetry: sample: the share of traces is not between 0 and 1: write 0.1 for a tenth",
        );
        check(&with("sample = nan"), &[], "telemetry: sample:");
        check(ENDPOINT, &[("OTEL_TRACES_SAMPLER", "always_on")], "write `sample` instead");
        let argument =
            [("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
        check(ENDPOINT, &argument, "OTEL_TRACES_SAMPLER_ARG is not a share");
        check(ENDPOINT, &[("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd")], "is neither `gzip` nor `none`");
        check(ENDPOINT, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "0")], "OTEL_EXPORTER_OTLP_TIMEOUT is not a number");
        check(
            ENDPOINT,
            &[("OTEL_RESOURCE_ATTRIBUTES", "SECRET")],
            "OTEL_RESOURCE_ATTRIBUTES: an entry does not",
        );
        check(&with("headers-from = \"H\""), &[], "the environment variable H is not set");
        for headers in
            ["SECRET", "a=%zz", "a b=SECRET", "a=SECRET\u{1}", "host=SECRET", "Content-Type=SECRET"]
        {
            check(&with("headers-from = \"H\""), &[("H", headers)], "telemetry: headers: ");
        }
        let many = "a=1,".repeat(MAX_HEADERS + 1);
        check(ENDPOINT, &[("OTEL_EXPORTER_OTLP_HEADERS", &many)], "there are more than 16 headers");
        let both = with("headers-from = \"H\"\nheaders-file = \"headers\"");
        check(&both, &[("H", "a=1")], "the section has both `headers-from` and `headers-file`");
        check(&with("ca-file = \"headers\""), &[], "its `endpoint` does not begin with https://");
        check(&with("end-point = \"a\""), &[], "unknown field `end-point`");
    }

    #[test]
    fn pairs_are_read() {
        let check = |text: &str, expected: Option<&[(&str, &str)]>| {
            let read = pairs(text).ok();
            let read = read.as_ref().map(|pairs| {
                pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>()
            });
            assert_eq!(read.as_deref(), expected, "{text}");
        };
        check("", Some(&[]));
        check("a=1", Some(&[("a", "1")]));
        check(" a = 1 , b=x=y,", Some(&[("a", "1"), ("b", "x=y")]));
        check("authorization=Bearer%20key\nb=%C3%A9\n", Some(&[("authorization", "Bearer key"), ("b", "é")]));
        for broken in ["a", "=1", "a=%", "a=%4", "a=%zz", "a=%ff", "a=1,b"] {
            check(broken, None);
        }
    }
}
