//! Connections that mend what the clients make of two answers.
//!
//! The clients refuse a whole list for one object whose name has an empty part, a part `.` or `..`, or control characters.
//! Such names are marked in the answer before a client reads it. And they repeat a request for a list of a web server that
//! has no lists (501), as if the server were overloaded.

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};

/// Begins a part of a name that no client takes. It is no character of any text.
const MARK: char = '\u{FDD0}';

#[derive(Debug)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Connection(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct Connection(HttpClient);

#[async_trait]
impl HttpService for Connection {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_web_list = request.method().as_str() == "PROPFIND";
        let query = request.uri().query().unwrap_or_default();
        let is_list = request.method().as_str() == "GET"
            && query.split('&').any(|one| one == "list-type=2" || one == "comp=list");
        let (mut head, body) = self.0.execute(request).await?.into_parts();
        if is_web_list && head.status.as_u16() == 501 {
            head.status = 405u16.try_into().expect("it is a status");
        }
        if !is_list || !head.status.is_success() {
            return Ok(HttpResponse::from_parts(head, body));
        }
        let text = String::from_utf8(body.bytes().await?.into())
            .map_err(|error| HttpError::new(HttpErrorKind::Decode, error))?;
        Ok(HttpResponse::from_parts(head, marked(&text).into()))
    }
}

/// A list of objects in which the names that no client takes are marked.
fn marked(list: &str) -> String {
    // The lists of S3 and Google Cloud Storage, and the one of Azure.
    let (start, end) = match list.contains("<EnumerationResults") {
        true => ("<Name>", "</Name>"),
        false => ("<Key>", "</Key>"),
    };
    let mut text = String::with_capacity(list.len());
    let mut rest = list;
    while let Some((before, after)) = rest.split_once(start)
        && let Some((name, after)) = after.split_once(end)
    {
        text.extend([before, start, &marked_name(name), end]);
        rest = after;
    }
    text + rest
}

fn marked_name(name: &str) -> String {
    // The name of a folder ends in `/`, and a client takes it.
    let (name, last) = name.strip_suffix('/').map_or((name, ""), |name| (name, "/"));
    let part = |part: &str| {
        let plain = without_control_characters(part);
        match plain == part && !matches!(part, "" | "." | "..") {
            true => plain,
            false => format!("{MARK}{plain}"),
        }
    };
    name.split('/').map(part).collect::<Vec<_>>().join("/") + last
}

/// A text of XML with `?` for control characters, also for those that are written as numbers.
fn without_control_characters(text: &str) -> String {
    let mut plain = text.replace(|c: char| c.is_ascii_control(), "?");
    let mut from = 0;
    while let Some(start) = plain[from..].find("&#").map(|at| from + at)
        && let Some(length) = plain[start..].find(';')
    {
        let number = &plain[start + 2..start + length];
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        if code.is_ok_and(|code| code < 0x20 || code == 0x7f) {
            plain.replace_range(start..=start + length, "?");
        }
        from = start + 1;
    }
    plain
}

/// The name of an object that no client takes, in which [`Connector`] has marked it.
pub(crate) fn unreadable(name: &str) -> Option<String> {
    name.contains(MARK).then(|| name.replace(MARK, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_client_takes_are_marked_and_the_others_are_as_they_were() {
        let list = |names: [&str; 8]| {
            let keys: Vec<String> = names.map(|name| format!("<Key>{name}</Key><Size>1</Size>")).into();
            format!("<ListBucketResult><Name>a//b</Name>{}</ListBucketResult>", keys.join("\n"))
        };
        let found = marked(&list([
            "a/b.png",
            "a/",
            "a//b.png",
            "/a.png",
            "a/./b",
            "a/../b",
            "a&#x1;&#65;/b",
            "a&amp;b/.c..",
        ]));
        let wanted = list([
            "a/b.png",
            "a/",
            "a/@/b.png",
            "@/a.png",
            "a/@./b",
            "a/@../b",
            "@a?&#65;/b",
            "a&amp;b/.c..",
        ]);
        assert_eq!(found, wanted.replace('@', &MARK.to_string()));
        let azure = "<EnumerationResults><Blob><Name>a//b</Name></Blob></EnumerationResults>";
        assert_eq!(marked(azure), azure.replace("a//b", &format!("a/{MARK}/b")));
        assert_eq!(unreadable(&format!("a/{MARK}/b")).as_deref(), Some("a//b"));
        assert_eq!(unreadable("a/b"), None);
    }
}
