//! How a prepared network multiplies.

use crate::product::{Precision, fastest};

gallerist_util::named_values! {
    /// How a network that only embeds computes its products, on the CPU.
    #[derive(Default)]
    pub enum Products {
        /// In f32; 3 x 3 convolutions by Winograd's algorithm, F(4 x 4, 3 x 3) of Lavin and Gray (2016), with a quarter of the
        /// multiplications. Its rounding errors are larger: below 5e-5 of the root mean square of a convolution's results.
        #[default]
        F32 = "f32", "3 x 3 convolutions by Winograd's algorithm";
        /// In f32, without Winograd's algorithm, which also takes less memory.
        F32Direct = "f32-direct", "without Winograd's algorithm: smaller rounding errors";
        /// Operands rounded to bf16 (8 significant bits), sums in f32, where the CPU has instructions for it
        /// ([`bf16_unit`](crate::bf16_unit)), else as `F32`. Depthwise convolutions, attention and layers of rows, such as
        /// the last one, stay f32.
        Bf16 = "bf16", "operands rounded to bf16, on CPUs with AMX or AVX-512 BF16";
    }
}

impl Products {
    /// The precision of a layer of maps or tokens, or of rows.
    pub(crate) fn precision(self, of_rows: bool) -> Precision {
        match (self, of_rows) {
            (Products::Bf16, false) => fastest().map_or(Precision::F32, Precision::Bf16),
            _ => Precision::F32,
        }
    }
}
