//! Uploads that wait for the network are embedded together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gallerist_data::Image;
use gallerist_serve::{BatchEmbedder, Contents, Embedder, Options};

use crate::common::{Barrier, CLASSES, Fixture, Running, embedding, ids, options, square};

/// Sees the colours of several squares at once, except that of black ones.
#[derive(Default)]
struct Squares {
    barrier: Barrier,
    /// Images that were preprocessed.
    preprocessed: AtomicUsize,
}

impl Embedder for Squares {
    fn dimensions(&self) -> usize {
        4
    }

    fn fingerprint(&self) -> &str {
        "colours"
    }

    fn embed(&self, _: &Image) -> Result<Vec<f32>, String> {
        Err("images are embedded together".to_owned())
    }

    fn batched(self: Arc<Self>) -> Option<Arc<dyn BatchEmbedder>> {
        Some(self)
    }
}

impl BatchEmbedder for Squares {
    fn preprocess(&self, image: &Image) -> Result<Vec<f32>, String> {
        self.preprocessed.fetch_add(1, Ordering::SeqCst);
        match image.width() {
            1 => Err("it is too small".to_owned()),
            _ => Ok(embedding(image)),
        }
    }

    fn embed_preprocessed(&self, images: &[&[f32]]) -> Result<Vec<Vec<f32>>, String> {
        self.barrier.pass();
        match images.iter().any(|image| image[..3] == [0.0; 3]) {
            true => Err("it is black".to_owned()),
            false => Ok(images.iter().map(|image| image.to_vec()).collect()),
        }
    }
}

#[test]
fn each_of_the_uploads_that_wait_gets_its_own_answer() {
    let fixture = Fixture::new();
    let network = Arc::new(Squares::default());
    let contents =
        Contents { embedder: Some(Arc::clone(&network) as Arc<dyn Embedder>), ..fixture.contents() };
    let server = Running::start(contents, Options { threads: 2, waiting: 16, ..options() });
    let upload = |colour: [u8; 3], side: u32| {
        let png = square(colour, side);
        server.post_form("/api/v1/search/upload", &[], &[("image", None, &png), ("k", None, b"1")])
    };
    let plain = Running::start(fixture.contents(), options());
    let wanted = CLASSES.map(|(_, colour)| {
        let png = square(colour, 4);
        let fields = [("image", None, &png[..]), ("k", None, &b"1"[..])];
        ids(&plain.post_form("/api/v1/search/upload", &[], &fields).json())
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| upload(CLASSES[0].1, 4));
        network.barrier.reached(1);
        let others = CLASSES.map(|(_, colour)| scope.spawn(move || upload(colour, 4)));
        let black = scope.spawn(|| upload([0; 3], 4));
        assert_eq!(upload(CLASSES[0].1, 1).status, 422, "an image without preprocessing waits for no other");
        while network.preprocessed.load(Ordering::SeqCst) < 6 {
            std::thread::yield_now();
        }
        network.barrier.open();
        assert_eq!(ids(&first.join().unwrap().json()), wanted[0]);
        for (other, wanted) in others.into_iter().zip(&wanted) {
            assert_eq!(ids(&other.join().unwrap().json()), *wanted);
        }
        let black = black.join().unwrap();
        assert_eq!((black.status, black.error().contains("it is black")), (422, true));
    });
}
