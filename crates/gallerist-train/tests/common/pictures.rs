//! Folders of small pictures.

use std::path::Path;

/// Writes a folder for each of `classes`, with `count` grey bitmaps of `side` x `side` pixels (`side` is a multiple of 4). `first` is
/// the slope of the greys of class 0; that of each further class is one more.
pub(crate) fn write(folder: &Path, [classes, count, side]: [usize; 3], first: usize) {
    for class in 0..classes {
        let folder = folder.join(format!("class-{class}"));
        std::fs::create_dir_all(&folder).unwrap();
        for number in 0..count {
            let mut file = b"BM".to_vec();
            let bytes = side * side * 3;
            for word in [54 + bytes, 0, 54, 40, side, side, 24 << 16 | 1, 0, bytes, 0, 0, 0, 0] {
                file.extend((word as u32).to_le_bytes());
            }
            let grey = |at: usize| ((at * (class + first) + 7 * number) % 251) as u8;
            (0..side * side).for_each(|at| file.extend([grey(at); 3]));
            std::fs::write(folder.join(format!("{number}.bmp")), file).unwrap();
        }
    }
}
