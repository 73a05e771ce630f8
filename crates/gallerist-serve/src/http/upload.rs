//! Forms with images.

use axum::extract::multipart::MultipartError;
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::StatusCode;

use super::error::{Answer, Refusal};
use super::extract::{Shared, too_large};

/// The body of a request that is a form.
pub(crate) struct FormBody(Multipart);

impl<S: Send + Sync> FromRequest<S> for FormBody {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        Multipart::from_request(request, state).await.map(Self).map_err(|_| {
            Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "wanted a form, with the header `Content-Type: multipart/form-data` and a boundary",
            )
            .hint("with curl: -F image=@FILE; it sets the header itself")
        })
    }
}

/// The fields of a form.
#[derive(Default)]
pub(crate) struct Form {
    /// The files of the fields `image`, with their names.
    pub(crate) images: Vec<(Option<String>, Vec<u8>)>,
    /// The other fields, with their names.
    texts: Vec<(String, String)>,
}

impl Form {
    /// Reads a form of at most `images` images and of text fields with these `names`.
    pub(crate) async fn read(
        state: &Shared,
        FormBody(form): FormBody,
        images: usize,
        names: &[&str],
    ) -> Answer<Self> {
        let limit = state.options.upload_time;
        tokio::time::timeout(limit, Self::fields(form, images, names)).await.map_err(|_| {
            let problem = format!("the upload took longer than {} s", limit.as_secs_f64());
            Refusal::new(StatusCode::REQUEST_TIMEOUT, problem)
        })?
    }

    async fn fields(mut form: Multipart, images: usize, names: &[&str]) -> Answer<Self> {
        let mut read = Self::default();
        while let Some(field) = form.next_field().await.map_err(|error| broken(&error))? {
            let name = field.name().unwrap_or_default().to_owned();
            if name == "image" {
                if read.images.len() == images {
                    return Err(Refusal::bad(format!(
                        "more images than the {images} that are taken at once"
                    )));
                }
                let file = field.file_name().map(str::to_owned);
                let bytes = field.bytes().await.map_err(|error| broken(&error))?;
                read.images.push((file, bytes.to_vec()));
            } else if names.contains(&name.as_str()) {
                let text = field.text().await.map_err(|error| broken(&error))?;
                read.texts.push((name, text));
            } else {
                let names = names.join(", ");
                return Err(Refusal::bad(format!("there is no field `{name}`"))
                    .hint(format!("the fields are image, {names}")));
            }
        }
        Ok(read)
    }

    /// All values of a field.
    pub(crate) fn take_all(&mut self, name: &str) -> Vec<String> {
        self.texts.extract_if(.., |(field, _)| field == name).map(|(_, text)| text).collect()
    }

    /// The value of a field that may be given once.
    pub(crate) fn take(&mut self, name: &str) -> Answer<Option<String>> {
        let mut values = self.take_all(name);
        match values.len() {
            0 | 1 => Ok(values.pop()),
            _ => Err(Refusal::bad(format!("the field `{name}` is given more than once"))),
        }
    }
}

fn broken(error: &MultipartError) -> Refusal {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        _ => Refusal::bad(format!("the form cannot be read: {}", error.body_text())),
    }
}
