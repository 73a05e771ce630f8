//! A small gallery of coloured squares, a network that sees colours, and a client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use gallerist_data::Image;
use gallerist_report::Picture;
use gallerist_retrieval::index::{ExactIndex, Index, Items};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix};
use gallerist_serve::{
    Contents, Embedder, FeatureMap, Gallery, Images, Options, Server, Stop, TextVector, Token,
};
use serde_json::Value;
use tempfile::TempDir;

/// Classes with the colour of their first square; the next ones are darker.
pub(crate) const CLASSES: [(&str, [u8; 3]); 3] =
    [("blue", [20, 40, 250]), ("<script>green</script>", [30, 240, 50]), ("red", [250, 30, 20])];

/// Squares per class.
pub(crate) const PER_CLASS: usize = 4;

/// The mean colour, and how bright it is.
pub(crate) fn embedding(image: &Image) -> Vec<f32> {
    let image = image.clone().to_rgb();
    let pixels = image.pixels().as_chunks::<3>().0;
    let mean = |channel: usize| {
        (pixels.iter().map(|pixel| f64::from(pixel[channel])).sum::<f64>() / pixels.len() as f64) as f32
    };
    vec![mean(0), mean(1), mean(2), 100.0]
}

/// Opens and closes: what waits at it can be counted.
#[derive(Default)]
pub(crate) struct Barrier {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Barrier {
    pub(crate) fn open(&self) {
        self.state.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    /// Waits until so many wait.
    pub(crate) fn reached(&self, waiting: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.1 < waiting).unwrap());
    }

    pub(crate) fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.0).unwrap());
    }
}

/// Sees colours; with a barrier it waits there.
#[derive(Default)]
pub(crate) struct Colours(pub(crate) Option<Arc<Barrier>>);

impl Embedder for Colours {
    fn dimensions(&self) -> usize {
        4
    }

    fn fingerprint(&self) -> &str {
        "colours"
    }

    fn embed(&self, image: &Image) -> Result<Vec<f32>, String> {
        if let Some(barrier) = &self.0 {
            barrier.pass();
        }
        Ok(embedding(image))
    }

    fn has_text(&self) -> bool {
        true
    }

    /// Knows the names of the classes, and reads three words.
    fn embed_text(&self, text: &str) -> Result<TextVector, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let known = words.iter().take(3).find_map(|word| CLASSES.iter().find(|(name, _)| name == word));
        let (_, colour) = known.ok_or_else(|| format!("no colour is in `{text}`"))?;
        let image =
            gallerist_data::decode(&square(*colour, 8), "a square").map_err(|error| error.to_string())?;
        Ok(TextVector { vector: embedding(&image), cut_to: (words.len() > 3).then_some(3) })
    }

    fn feature_map(&self, image: &Image) -> Option<FeatureMap> {
        let image = image.clone().to_rgb();
        let values = image.pixels().iter().map(|&value| value.into()).collect();
        Some(FeatureMap { height: image.height(), width: image.width(), channels: 3, values })
    }
}

/// A square of one colour, as PNG.
pub(crate) fn square([r, g, b]: [u8; 3], side: u32) -> Vec<u8> {
    let pixels: Vec<u8> = (0..side * side).flat_map(|_| [r, g, b]).collect();
    Picture::from_pixels(side, side, 3, &pixels).unwrap().bytes().to_vec()
}

pub(crate) fn shade(colour: [u8; 3], step: usize) -> [u8; 3] {
    colour.map(|value| value - value / 20 * step as u8)
}

/// Squares in class folders, and their embeddings.
pub(crate) struct Fixture {
    folder: TempDir,
    pub(crate) set: EmbeddingSet,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (mut values, mut labels, mut paths) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (label, colour)) in CLASSES.iter().enumerate() {
            std::fs::create_dir_all(folder.path().join(format!("images/{number}"))).unwrap();
            for step in 0..PER_CLASS {
                let path = format!("{number}/{step}.png");
                // Large enough that a thumbnail is smaller.
                let png = square(shade(*colour, step), 400);
                std::fs::write(folder.path().join("images").join(&path), &png).unwrap();
                values.extend(embedding(&gallerist_data::decode(&png, "a square").unwrap()));
                labels.push((*label).to_owned());
                paths.push(path);
            }
        }
        let set = EmbeddingSet {
            labels: Some(labels),
            paths: Some(paths),
            model: Some("colours".to_owned()),
            ..Matrix::new(values.len() / 4, 4, values).unwrap().into()
        };
        Self { folder, set }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The embeddings as a file.
    pub(crate) fn file(&self) -> PathBuf {
        let path = self.path("gallery.safetensors");
        self.set.save(&path).unwrap();
        path
    }

    /// The embeddings as the file of an index.
    pub(crate) fn index_file(&self) -> PathBuf {
        let path = self.path("gallery.index");
        exact_index(self.set.clone(), Metric::Cosine).save(&path).unwrap();
        path
    }

    /// Gallery, images and network; the gallery is an index, which can be changed.
    pub(crate) fn contents_in_index(&self) -> Contents {
        let index = exact_index(self.set.clone(), Metric::Cosine);
        let gallery = Gallery::from_index("i", Box::new(index)).unwrap();
        self.contents_of(gallery)
    }

    pub(crate) fn images(&self) -> Images {
        Images::open(&self.path("images"), 1 << 20, None).unwrap()
    }

    /// Gallery, images and network.
    pub(crate) fn contents(&self) -> Contents {
        self.contents_of(Gallery::open(&self.file(), false).unwrap())
    }

    pub(crate) fn contents_of(&self, gallery: Gallery) -> Contents {
        Contents {
            images: Some(self.images()),
            embedder: Some(Arc::new(Colours::default())),
            ..gallery.into()
        }
    }
}

/// An index of some embeddings that compares all of them.
pub(crate) fn exact_index(set: EmbeddingSet, metric: Metric) -> ExactIndex {
    let mut index = ExactIndex::new(set.embeddings.cols(), metric).unwrap();
    index.upsert(&Items::from_set(set).unwrap()).unwrap();
    index
}

/// Options for a port that is free.
pub(crate) fn options() -> Options {
    let mut options = Options { threads: 2, ..Options::default() };
    options.address.set_port(0);
    options
}

/// The token of the tests.
pub(crate) fn secret() -> Vec<Token> {
    vec!["secret".parse().unwrap()]
}

/// The header with it.
pub(crate) const TOKEN: (&str, &str) = ("Authorization", "Bearer secret");

/// Options of a server that takes it.
pub(crate) fn with_token() -> Options {
    Options { tokens: secret(), ..options() }
}

/// Adds a grey square under this path.
pub(crate) fn add(server: &Running, path: &str, fields: &[(&str, Option<&str>, &[u8])]) -> Response {
    let png = square([200, 200, 200], 8);
    let image = [("image", Some("x.png"), &png[..]), ("path", None, path.as_bytes())];
    server.post_form("/api/v1/items", &[TOKEN], &[&image, fields].concat())
}

/// A server that runs.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(contents: Contents, options: Options) -> Self {
        Self::of(Server::bind(contents, options).unwrap())
    }

    pub(crate) fn of(server: Server) -> Self {
        let address = server.address().unwrap();
        let stop = server.stop();
        let thread = std::thread::spawn(move || server.run().unwrap());
        Self { address, stop, thread: Some(thread) }
    }

    /// Asks the server to stop.
    pub(crate) fn stop(&self) {
        self.stop.now();
    }

    /// Waits until it has stopped.
    pub(crate) fn stopped(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        self.get(path).json()
    }

    pub(crate) fn post_json(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, &[("Content-Type", "application/json")], body.to_string().as_bytes())
    }

    /// Sends a form: names, file names, contents.
    pub(crate) fn post_form(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        fields: &[(&str, Option<&str>, &[u8])],
    ) -> Response {
        let (content_type, body) = form(fields);
        let headers: Vec<_> =
            headers.iter().copied().chain([("Content-Type", content_type.as_str())]).collect();
        self.send("POST", path, &headers, &body)
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n").into_bytes();
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request.extend(format!("Host: {}\r\n", self.address).bytes());
        }
        for (name, value) in headers {
            request.extend(format!("{name}: {value}\r\n").bytes());
        }
        request.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
        request.extend(body);
        self.raw(&request)
    }

    /// Sends bytes as they are.
    pub(crate) fn raw(&self, request: &[u8]) -> Response {
        let mut stream = self.connect();
        // A server that refuses need not read all of it.
        let _ = stream.write_all(request);
        Response::read(&mut stream)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// A connection from another address of this machine: another client.
    pub(crate) fn connect_from(&self, address: [u8; 4]) -> TcpStream {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind((address, 0).into()).unwrap();
            socket.connect(self.address).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Asks until the state of what is computed after the start is `ready`.
    pub(crate) fn ready(&self, path: &str) -> Value {
        loop {
            let answer = self.json(path);
            match answer["state"].as_str() {
                Some("computing") => std::thread::sleep(Duration::from_millis(10)),
                state => {
                    assert_eq!(state, Some("ready"), "{path}");
                    return answer;
                }
            }
        }
    }

    /// Id and label of all items.
    pub(crate) fn items(&self) -> Vec<(String, String)> {
        let items = self.json("/api/v1/items?limit=500");
        let text = |item: &Value, key: &str| item[key].as_str().unwrap_or_default().to_owned();
        items["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| (text(item, "id"), text(item, "label")))
            .collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn form(fields: &[(&str, Option<&str>, &[u8])]) -> (String, Vec<u8>) {
    let mut body = Vec::new();
    for (name, file, content) in fields {
        body.extend(format!("--limit\r\nContent-Disposition: form-data; name=\"{name}\"").bytes());
        if let Some(file) = file {
            body.extend(format!("; filename=\"{file}\"").bytes());
        }
        body.extend(b"\r\n\r\n");
        body.extend(*content);
        body.extend(b"\r\n");
    }
    body.extend(b"--limit--\r\n");
    ("multipart/form-data; boundary=limit".to_owned(), body)
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn read(stream: &mut TcpStream) -> Self {
        Self::try_read(stream).expect("an answer")
    }

    /// `None` if the connection is closed without an answer.
    pub(crate) fn try_read(stream: &mut TcpStream) -> Option<Self> {
        let mut all = Vec::new();
        // A connection that is reset after the answer has still answered.
        let _ = stream.read_to_end(&mut all);
        let end = all.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8(all[..end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Some(Self { status, headers, body: all[end + 4..].to_vec() })
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The message of a refusal.
    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap().to_owned()
    }
}

/// Ids of a list of results.
pub(crate) fn ids(results: &Value) -> Vec<String> {
    let results = results["results"].as_array().unwrap();
    results.iter().map(|result| result["id"].as_str().unwrap().to_owned()).collect()
}

/// Whether a folder holds a file with this ending.
pub(crate) fn holds(folder: &Path, ending: &str) -> usize {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    files.filter(|name| name.to_string_lossy().ends_with(ending)).count()
}
