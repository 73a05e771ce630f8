//! A text tower and its tokenizer.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use gallerist_util::panics::caught;
use serde_json::Value;
use tokenizers::{PaddingStrategy, PostProcessor, Tokenizer, TruncationParams};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inspect::{Described, described};
use crate::model::{digest, list, output_of};
use crate::session::{self, Dtype, Session, Slot, Values};
use crate::text_row::{MAX_TEXT_BYTES, MAX_TOKENS, TextRow};

/// The outputs that are taken if they exist: the embedding of a text of CLIP, and of SigLIP.
const PREFERRED: [&str; 2] = ["text_embeds", "pooler_output"];

/// The largest tokenizer file that is read, in bytes. Those of the multilingual models have about 35 MB.
const MAX_TOKENIZER_BYTES: u64 = 256 << 20;

/// The text tower of a model of images and texts, as a function from a text to one row.
pub struct TextModel {
    path: PathBuf,
    session: Box<dyn Session>,
    ids: usize,
    /// The input that is 1 for tokens and 0 for padding.
    mask: Option<usize>,
    output: usize,
    tokenizer: Tokenizer,
    /// Texts per pass, where the model fixes them.
    batch: usize,
    length: usize,
    padding: Padding,
    sha256: String,
}

/// The token that fills a text up.
#[derive(Clone, Copy)]
enum Padding {
    Token(u32),
    /// The last token of the text.
    Last,
    /// A token that is not the last one of the text.
    OtherThanLast,
}

impl std::fmt::Debug for TextModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextModel")
            .field("path", &self.path)
            .field("output", &self.output())
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl TextModel {
    /// Reads a text tower, and the `tokenizer.json` of its tokenizer.
    ///
    /// The tower has an input `input_ids`, `[texts, tokens]`, and may have an `attention_mask`. `output` is the name of the
    /// output to take; `None`: `text_embeds`, else `pooler_output`, else the first one. `length` is the number of tokens
    /// that every text is filled up or cut to; `None`: that of the model, else that of the tokenizer, else
    /// `model_max_length` of the `tokenizer_config.json` next to it. `engine` computes the tower.
    ///
    /// # Errors
    ///
    /// When the engine is not available, when a file cannot be read or is not what it should be, and when nothing gives the
    /// length.
    pub fn open(
        path: &Path,
        tokenizer: &Path,
        output: Option<&str>,
        length: Option<usize>,
        engine: Engine,
    ) -> Result<Self> {
        let fail =
            |reason: String, hint: &str| Error { path: Some(path.into()), reason, hint: Some(hint.into()) };
        let config_file = tokenizer.with_file_name("tokenizer_config.json");
        let mut parsed = read_tokenizer(tokenizer)?;
        let config = read_config(&config_file);
        let Described { files, operators, cut, .. } = described(path, engine)?;
        let session = session::open(path, engine, cut)?;
        let Inputs { ids, mask, batch, fixed } = inputs(path, session.inputs())?;
        let output = output_of(path, session.outputs(), output, &PREFERRED)?;
        if let (Some(fixed), Some(length)) = (fixed, length)
            && fixed != length
        {
            return Err(fail(
                format!("it is for texts of {fixed} tokens, not {length}"),
                "leave out text.length",
            ));
        }
        let found = fixed.or(length).or_else(|| length_of(&parsed, config.as_ref()));
        let Some(length) = found.filter(|length| (1..=MAX_TOKENS / batch).contains(length)) else {
            let reason = match found {
                None => "nothing says for how many tokens it is".to_owned(),
                Some(length) => {
                    format!("a text of {length} tokens is not from 1 to {} long", MAX_TOKENS / batch)
                }
            };
            return Err(fail(
                reason,
                "give the number of tokens: text.length, 77 for CLIP and 64 for SigLIP",
            ));
        };
        // The library subtracts `added` from `length` without a check. A difference that wraps around turns truncation off.
        let added = parsed.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        if added >= length {
            return Err(fail(
                format!("its tokenizer adds {added} tokens to every text, and a text is {length} long"),
                "give a larger text.length, 77 for CLIP and 64 for SigLIP",
            ));
        }
        let padding = padding_of(&parsed, config.as_ref()).map_or(Padding::Last, Padding::Token);
        parsed.with_padding(None);
        let truncation = TruncationParams { max_length: length, ..TruncationParams::default() };
        parsed
            .with_truncation(Some(truncation))
            .map_err(|error| not_a_tokenizer(tokenizer, &error.to_string()))?;
        // The library panics at any text where a template names a token that the file does not define.
        if let Err(panic) = caught(|| parsed.encode("a", true)) {
            return Err(not_a_tokenizer(tokenizer, &format!("it panics at a text: {panic}")));
        }
        let more: Vec<&Path> =
            [Some(tokenizer), config.as_ref().map(|_| config_file.as_path())].into_iter().flatten().collect();
        let sha256 = digest(path, &files, &more)?;
        // CLIP takes the token at the first end of the text, which it finds with ArgMax, and fills texts up with ends of
        // the text. Of equal values, rten's ArgMax returns the last one. The attention of CLIP is causal, so that
        // another padding gives the same row.
        let padding = match operators.contains("ArgMax") {
            true => Padding::OtherThanLast,
            false => padding,
        };
        let tokenizer = parsed;
        Ok(Self { path: path.into(), session, ids, mask, output, tokenizer, batch, length, padding, sha256 })
    }

    /// SHA-256 of the tower, its files of weights, the tokenizer and its configuration, 64 hexadecimal digits.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The name of the output that is taken.
    pub fn output(&self) -> &str {
        &self.session.outputs()[self.output].name
    }

    /// The number of tokens that every text is filled up or cut to.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The row of a text, as the model returns it.
    ///
    /// # Errors
    ///
    /// When the text is empty or longer than 64 KiB, when the tokenizer cannot read it, and when the model cannot be computed.
    pub fn embed(&self, text: &str) -> Result<TextRow> {
        let refused = |reason: String, hint: &str| Error { path: None, reason, hint: Some(hint.into()) };
        if text.trim().is_empty() {
            return Err(refused("the text is empty".into(), "write what the images show"));
        }
        if text.len() > MAX_TEXT_BYTES {
            let reason = format!("the text has {} bytes, and at most {MAX_TEXT_BYTES} are read", text.len());
            return Err(refused(reason, "write a sentence"));
        }
        let refuses = |error: String| self.fail(format!("its tokenizer refuses the text: {error}"), None);
        let encoded = caught(|| self.tokenizer.encode(text, true)).map_err(refuses)?;
        let encoded = encoded.map_err(|error| refuses(error.to_string()))?;
        let is_cut = !encoded.get_overflowing().is_empty();
        let mut tokens: Vec<u32> = encoded.get_ids().to_vec();
        let Some(&last) = tokens.last() else {
            return Err(refused(
                "the model's tokenizer finds no word in the text".into(),
                "write what the images show",
            ));
        };
        let count = tokens.len();
        let padding = match self.padding {
            Padding::Token(token) => token,
            Padding::Last => last,
            // Also smaller than the end of the text, which is the largest token of CLIP.
            Padding::OtherThanLast => u32::from(last == 0),
        };
        tokens.resize(self.length, padding);
        let ids: Vec<i32> = tokens.iter().map(|&token| token as i32).collect();
        let mask: Vec<i32> = (0..self.length).map(|at| i32::from(at < count)).collect();
        let row = self.compute(&ids, &mask)?;
        Ok(TextRow { row, cut_to: is_cut.then_some(self.length) })
    }

    fn compute(&self, ids: &[i32], mask: &[i32]) -> Result<Vec<f32>> {
        let block =
            |values: &[i32]| Values::Integers(vec![self.batch, self.length], values.repeat(self.batch));
        let mut given = vec![(self.ids, block(ids))];
        given.extend(self.mask.map(|at| (at, block(mask))));
        let found = self.session.compute(given, self.output);
        let session::Computed { shape, values } = found.map_err(|reason| self.fail(reason, None))?;
        match shape[..] {
            [texts, width] if texts == self.batch && width > 0 => Ok(values[..width].to_vec()),
            _ => Err(self.fail(
                format!("its output `{}` has the shape {shape:?}; wanted [texts, length]", self.output()),
                Some(
                    "take the projected embedding: text.output; `gallerist model inspect` shows the outputs",
                ),
            )),
        }
    }

    fn fail(&self, reason: String, hint: Option<&str>) -> Error {
        Error { path: Some(self.path.clone()), reason, hint: hint.map(str::to_owned) }
    }
}

/// The places of the inputs of a text tower, and its shape.
struct Inputs {
    ids: usize,
    mask: Option<usize>,
    batch: usize,
    /// Tokens, where the model fixes them.
    fixed: Option<usize>,
}

fn inputs(path: &Path, all: &[Slot]) -> Result<Inputs> {
    let wrong = |what: &str| Error {
        path: Some(path.into()),
        reason: format!("it is no text tower: {what}; its inputs are {}", list(all)),
        hint: Some("export the text tower alone, with the inputs input_ids and attention_mask".into()),
    };
    let (mut ids, mut mask) = (None, None);
    for (at, input) in all.iter().enumerate() {
        match input.name.as_str() {
            "input_ids" => ids = Some(at),
            "attention_mask" => mask = Some(at),
            _ if all.len() == 1 => ids = Some(at),
            _ => return Err(wrong("it has an input that is neither `input_ids` nor `attention_mask`")),
        }
    }
    let ids = ids.ok_or_else(|| wrong("it has no input `input_ids`"))?;
    if all[ids].dtype.is_some_and(|dtype| dtype != Dtype::Integer) {
        return Err(wrong("its tokens are no integers"));
    }
    let (batch, fixed) = match all[ids].shape.as_deref() {
        None => (None, None),
        Some([texts, tokens]) => (texts.fixed(), tokens.fixed()),
        Some(_) => return Err(wrong("its tokens do not have the shape [texts, tokens]")),
    };
    // A pass computes one text; a model that was exported for more gets it more than once.
    let batch = batch.unwrap_or(1);
    if batch.saturating_mul(fixed.unwrap_or(1)) > MAX_TOKENS || batch == 0 {
        return Err(wrong("the shape of its tokens is too large or empty"));
    }
    Ok(Inputs { ids, mask, batch, fixed })
}

fn not_a_tokenizer(path: &Path, error: &str) -> Error {
    Error {
        path: Some(path.into()),
        reason: format!("it is no tokenizer: {error}"),
        hint: Some("give the tokenizer.json of the model's folder: text.tokenizer".into()),
    }
}

fn read_tokenizer(path: &Path) -> Result<Tokenizer> {
    let hint = "give the tokenizer.json of the model's folder: text.tokenizer";
    let fail = |reason: String| Error { path: Some(path.into()), reason, hint: Some(hint.into()) };
    let bytes = read(path, MAX_TOKENIZER_BYTES).map_err(|error| fail(format!("cannot read it: {error}")))?;
    match caught(|| Tokenizer::from_bytes(bytes)) {
        Ok(Ok(tokenizer)) => Ok(tokenizer),
        Ok(Err(error)) => Err(not_a_tokenizer(path, &error.to_string())),
        Err(panic) => Err(not_a_tokenizer(path, &panic)),
    }
}

/// The `tokenizer_config.json` with which models are published; `None` where there is none.
fn read_config(path: &Path) -> Option<Value> {
    serde_json::from_slice(&read(path, 1 << 20).ok()?).ok()
}

/// A regular file of at most `most` bytes.
fn read(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let size = file.metadata()?;
    if !size.is_file() || size.len() > most {
        let problem = format!("it is no file, or has more than {most} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, problem));
    }
    let mut bytes = Vec::with_capacity(size.len() as usize);
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The number of tokens that a tokenizer fills texts up to, or cuts them to.
fn length_of(tokenizer: &Tokenizer, config: Option<&Value>) -> Option<usize> {
    let filled = tokenizer.get_padding().and_then(|padding| match padding.strategy {
        PaddingStrategy::Fixed(length) => Some(length),
        PaddingStrategy::BatchLongest => None,
    });
    // Where a tokenizer has no limit, its configuration has a number of about 1e30.
    let published = config.and_then(|config| config["model_max_length"].as_u64());
    let published =
        published.and_then(|length| usize::try_from(length).ok()).filter(|&length| length <= MAX_TOKENS);
    filled.or(tokenizer.get_truncation().map(|cut| cut.max_length)).or(published)
}

/// The token that fills texts up.
fn padding_of(tokenizer: &Tokenizer, config: Option<&Value>) -> Option<u32> {
    let own = tokenizer.get_padding().map(|padding| padding.pad_id);
    let published = config.and_then(|config| {
        let token = &config["pad_token"];
        tokenizer.token_to_id(token.as_str().or(token["content"].as_str())?)
    });
    own.or(published)
}
