//! The refusals of stores, in words.

use crate::address::{divide, is_web};

/// What a server answered in place of what was wanted.
struct Answer<'a> {
    /// For instance 404.
    status: u16,
    /// For instance `404 Not Found`.
    title: &'a str,
    /// The code of S3, Google and Azure, such as `AccessDenied`; empty without one.
    code: &'a str,
    /// Their explanation.
    message: &'a str,
}

/// The answer in the error of a client. Its type is private to `object_store`.
fn answer(text: &str) -> Option<Answer<'_>> {
    let (_, rest) = text.split_once("non-2xx status code: ")?;
    let (title, body) = rest.split_once(": ").unwrap_or((rest.trim_end_matches([':', ' ']), ""));
    let value = |tag: &str| {
        let (_, after) = body.split_once(&format!("<{tag}>"))?;
        Some(after.split_once(&format!("</{tag}>"))?.0.trim().trim_end_matches('.'))
    };
    Some(Answer {
        status: title.get(..3)?.parse().ok()?,
        title,
        code: value("Code").unwrap_or_default(),
        message: value("Message").unwrap_or_default(),
    })
}

/// Whether an error says that there is no such bucket, not only no such object.
pub(crate) fn names_no_bucket(error: &object_store::Error) -> bool {
    answer(&message(error)).is_some_and(|answer| is_of_bucket(answer.code))
}

fn is_of_bucket(code: &str) -> bool {
    matches!(code, "NoSuchBucket" | "ContainerNotFound" | "FilesystemNotFound")
}

/// What is wrong, and what to do about it.
pub(crate) fn explain(
    action: &str,
    address: &str,
    error: &object_store::Error,
    has_credentials: bool,
) -> (String, Option<String>) {
    use object_store::Error as E;
    let text = message(error);
    let owned = |hint: &str| Some(hint.to_owned());
    let Some(found) = answer(&text) else {
        let hint = match error {
            E::NotFound { .. } | E::InvalidPath { .. } => None,
            E::NotImplemented { .. } | E::NotSupported { .. } => owned(
                "this server cannot do it: a folder needs one that lists it, and a manifest with shards one that gives parts of files",
            ),
            _ if text.contains("certificate") => owned(
                "the certificate of the server is not trusted: the environment variable SSL_CERT_FILE names the one of the \
                 authority that signed it, and the host of the address is the name in it",
            ),
            // What an encrypted connection makes of an answer in the clear.
            _ if text.contains("corrupt message") => Some(format!(
                "a server without TLS has an address that begins with http://; {}",
                environment(address)
            )),
            _ => owned(environment(address)),
        };
        return (text, hint);
    };
    if is_of_bucket(found.code) {
        let (place, _) = divide(address);
        let hint = "look at its name, and at the server and the region in the environment variables";
        return (format!("there is no bucket `{place}`"), owned(hint));
    }
    let problem = match (found.code, found.message) {
        ("", _) if found.status == 404 => "there is no such object".to_owned(),
        ("", _) => format!("the server answers {}", found.title),
        (code, "") => format!("the server answers {}: {code}", found.title),
        (code, message) => format!("the server answers {}: {code} ({message})", found.title),
    };
    let hint = match found.status {
        404 => None,
        400 if text.contains("HTTPS") => owned(
            "the server has TLS: its address, or the one in the environment variables, begins with https://",
        ),
        400 | 405 | 501 if is_web(address) && action == "list" => {
            let problem = "the server does not list folders".to_owned();
            return (problem, owned("give the address of an image, a manifest or an archive"));
        }
        401 | 403 if is_web(address) => {
            owned("the server refuses it without a login, which is not supported: download the files first")
        }
        403 if has_credentials
            && matches!(found.code, "" | "AccessDenied" | "AuthorizationPermissionMismatch") =>
        {
            owned(
                "the credentials in the environment variables have no permission for it, or there is no such object and they \
                 may not list the bucket",
            )
        }
        429 | 500.. => owned("the server is at fault or overloaded: try again later"),
        _ => owned(environment(address)),
    };
    (problem, hint)
}

/// An error with its causes, in one line.
pub(crate) fn message(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(one) = cause {
        let part = one.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = one.source();
    }
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The environment variables of the store of an address.
pub(crate) fn environment(address: &str) -> &'static str {
    let scheme = gallerist_util::text::address(address).map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref().unwrap_or_default() {
        "s3" | "s3a" => {
            "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION; for a server other than Amazon's also \
             AWS_ENDPOINT_URL, and AWS_ALLOW_HTTP=true for one without TLS; for a public bucket AWS_SKIP_SIGNATURE=true"
        }
        "gs" => {
            "set GOOGLE_SERVICE_ACCOUNT to the file of a service account; for a public bucket GOOGLE_SKIP_SIGNATURE=true"
        }
        "az" | "abfs" | "abfss" => {
            "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY; for a public container AZURE_SKIP_SIGNATURE=true"
        }
        _ => {
            "an address is s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or https://HOST/PATH; for http:// set ALLOW_HTTP=true"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: &str, body: &str) -> object_store::Error {
        let text = format!(
            "Error performing GET http://host/x in 1ms - Server returned non-2xx status code: {status}: {body}"
        );
        object_store::Error::Generic { store: "S3", source: text.into() }
    }

    #[test]
    fn a_refusal_is_one_sentence_with_the_hint_that_fits_it() {
        let error = |code: &str| {
            format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>Why.</Message></Error>")
        };
        let s3 =
            |status: &str, code: &str| explain("read", "s3://bucket/x", &refusal(status, &error(code)), true);
        let (problem, hint) = s3("404 Not Found", "NoSuchBucket");
        assert_eq!(problem, "there is no bucket `s3://bucket`");
        assert!(hint.unwrap().contains("look at its name"));
        assert!(names_no_bucket(&refusal("404 Not Found", &error("NoSuchBucket"))));
        assert!(!names_no_bucket(&refusal("404 Not Found", &error("NoSuchKey"))));
        let (problem, hint) = s3("403 Forbidden", "AccessDenied");
        assert_eq!(problem, "the server answers 403 Forbidden: AccessDenied (Why)");
        assert!(hint.unwrap().contains("have no permission"));
        assert!(s3("403 Forbidden", "SignatureDoesNotMatch").1.unwrap().contains("AWS_SECRET_ACCESS_KEY"));
        assert!(s3("500 Internal Server Error", "InternalError").1.unwrap().contains("try again later"));
        let broken = |text: &str| {
            let error = object_store::Error::Generic { store: "S3", source: text.into() };
            explain("read", "s3://bucket/x", &error, true).1.unwrap()
        };
        assert!(broken("invalid peer certificate: UnknownIssuer").contains("SSL_CERT_FILE"));
        assert!(broken("received corrupt message of type InvalidContentType").contains("http://"));
        let plain = refusal("400 Bad Request", "Client sent an HTTP request to an HTTPS server.");
        assert!(explain("read", "s3://bucket/x", &plain, true).1.unwrap().contains("https://"));
        let web = explain(
            "list",
            "http://host/folder",
            &refusal("405 Method Not Allowed", "<html>no</html>"),
            false,
        );
        assert_eq!(web.0, "the server does not list folders");
        assert!(web.1.unwrap().contains("an archive"));
    }
}
