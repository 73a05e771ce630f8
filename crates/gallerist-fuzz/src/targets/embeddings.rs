//! Embeddings in safetensors, with their checksum repaired: loaded, mapped, mapped in bf16 and int8, and written again.

use gallerist_retrieval::file::{MappedCompact, MappedMatrix, read_threshold};
use gallerist_retrieval::{EmbeddingSet, search};

use crate::cost::{Limit, within};
use crate::goals::reached;
use crate::{repair, scratch};

pub(super) fn run(bytes: &[u8]) {
    let bytes = &repair::safetensors(bytes);
    let path = scratch::file("input.safetensors", bytes);
    let loaded = within(Limit::TEXT, bytes, || EmbeddingSet::load(&path));
    let mapped = within(Limit::TEXT, bytes, || MappedMatrix::open(&path));
    let compact = within(Limit::TEXT, bytes, || MappedCompact::open(&path));
    let threshold = within(Limit::TEXT, bytes, || read_threshold(&path));
    if let Ok(mapped) = &mapped {
        reached("mapped");
        let _ = mapped.verify();
        mapped.check().expect("the file has not changed");
    }
    if let Ok(compact) = &compact {
        reached("compact");
        let _ = compact.verify();
        let _ = within(Limit::TEXT, bytes, || compact.select(&[]));
        let _ = within(Limit::TEXT, bytes, || compact.without_embeddings());
    }
    let Ok(set) = loaded else { return };
    reached("loaded");
    match threshold {
        Ok(Some(_)) => reached("threshold"),
        Ok(None) => {}
        Err(error) => panic!("a file is loaded whose threshold cannot be read: {error}"),
    }
    if !set.columns.is_empty() {
        reached("columns");
    }
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    if let Ok(mapped) = &mapped {
        assert!(bits(mapped.view().as_slice()) == bits(set.embeddings.as_slice()), "mapped values differ");
    }
    if let Ok(compact) = &compact {
        let decoded = compact.view().decode();
        assert!(bits(decoded.as_slice()) == bits(set.embeddings.as_slice()), "mapped compact values differ");
    }
    let again = scratch::path("again.safetensors");
    set.save(&again).expect("a set that was loaded is written");
    let read = EmbeddingSet::load(&again).expect("a set that was written is loaded");
    assert!(bits(read.embeddings.as_slice()) == bits(set.embeddings.as_slice()), "values change");
    let empty = |set: &EmbeddingSet| EmbeddingSet {
        embeddings: gallerist_retrieval::Matrix::new(0, 0, Vec::new()).expect("an empty matrix"),
        ..set.clone()
    };
    assert_eq!(empty(&read), empty(&set), "labels, columns or notes change when they are written");
    // Values from outside are ranked, or refused by name.
    if set.embeddings.rows() <= 64 {
        let _ = search::self_search(&set.embeddings, &search::SearchOptions::new(3));
    }
}
