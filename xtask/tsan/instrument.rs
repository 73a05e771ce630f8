//! Instruments a library for ThreadSanitizer: `instrument IN.bc OUT.o`.
//!
//! IN.bc is the LLVM bitcode that the object files of Rust's standard library contain. Each of its functions gets the
//! attribute `sanitize_thread`, then the passes run that `-Zsanitizer=thread` adds, and the result is compiled to OUT.o.
//! Built with the nightly compiler and its own LLVM, so that both read the same bitcode: see `src/tsan/sysroot.rs`.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::process::ExitCode;
use std::ptr::{null, null_mut};

/// A pointer to an object of LLVM, which this program never frees: it ends after one library.
type Ref = *mut c_void;

/// The passes of `-Zsanitizer=thread`.
const PASSES: &CStr = c"tsan-module,function(tsan)";

/// `LLVMAttributeFunctionIndex`: an attribute of the function itself, not of a parameter.
const FUNCTION: c_uint = c_uint::MAX;

/// `LLVMCodeGenLevelDefault`, `LLVMRelocPIC`, `LLVMCodeModelDefault`, `LLVMObjectFile`.
const LEVEL: c_int = 2;
const PIC: c_int = 2;
const MODEL: c_int = 0;
const OBJECT: c_int = 1;

// Signatures of llvm-c/Core.h, BitReader.h, Target.h, TargetMachine.h and Transforms/PassBuilder.h.
unsafe extern "C" {
    fn LLVMContextCreate() -> Ref;
    fn LLVMCreateMemoryBufferWithContentsOfFile(
        path: *const c_char,
        buffer: *mut Ref,
        message: *mut *mut c_char,
    ) -> c_int;
    fn LLVMParseBitcodeInContext2(context: Ref, buffer: Ref, module: *mut Ref) -> c_int;
    fn LLVMGetTarget(module: Ref) -> *const c_char;
    fn LLVMGetFirstFunction(module: Ref) -> Ref;
    fn LLVMGetNextFunction(function: Ref) -> Ref;
    fn LLVMIsDeclaration(function: Ref) -> c_int;
    fn LLVMGetEnumAttributeKindForName(name: *const c_char, length: usize) -> c_uint;
    fn LLVMCreateEnumAttribute(context: Ref, kind: c_uint, value: u64) -> Ref;
    fn LLVMGetEnumAttributeAtIndex(function: Ref, index: c_uint, kind: c_uint) -> Ref;
    fn LLVMAddAttributeAtIndex(function: Ref, index: c_uint, attribute: Ref);
    fn LLVMInitializeX86TargetInfo();
    fn LLVMInitializeX86Target();
    fn LLVMInitializeX86TargetMC();
    fn LLVMInitializeX86AsmPrinter();
    fn LLVMInitializeX86AsmParser();
    fn LLVMGetTargetFromTriple(triple: *const c_char, target: *mut Ref, message: *mut *mut c_char) -> c_int;
    fn LLVMCreateTargetMachine(
        target: Ref,
        triple: *const c_char,
        cpu: *const c_char,
        features: *const c_char,
        level: c_int,
        relocation: c_int,
        model: c_int,
    ) -> Ref;
    fn LLVMCreatePassBuilderOptions() -> Ref;
    fn LLVMRunPasses(module: Ref, passes: *const c_char, machine: Ref, options: Ref) -> Ref;
    fn LLVMGetErrorMessage(error: Ref) -> *mut c_char;
    fn LLVMTargetMachineEmitToFile(
        machine: Ref,
        module: Ref,
        path: *const c_char,
        kind: c_int,
        message: *mut *mut c_char,
    ) -> c_int;
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [bitcode, object] = &args[..] else {
        eprintln!("usage: instrument IN.bc OUT.o");
        return ExitCode::from(2);
    };
    match instrument(bitcode, object) {
        Ok(count) => {
            println!("{count}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("error: {bitcode}: {reason}");
            ExitCode::from(1)
        }
    }
}

/// Writes the instrumented object; returns how many functions it has.
fn instrument(bitcode: &str, object: &str) -> Result<usize, String> {
    let path = |path: &str| CString::new(path).map_err(|_| "a path with a zero byte".to_string());
    let (bitcode, object) = (path(bitcode)?, path(object)?);
    // SAFETY: the signatures are those of the headers of LLVM. Every pointer that is passed comes from LLVM or is a C
    // string that outlives the call, and every result is checked before its use. One thread uses the context.
    unsafe {
        LLVMInitializeX86TargetInfo();
        LLVMInitializeX86Target();
        LLVMInitializeX86TargetMC();
        LLVMInitializeX86AsmPrinter();
        LLVMInitializeX86AsmParser();

        let context = LLVMContextCreate();
        let (mut buffer, mut module, mut message) = (null_mut(), null_mut(), null_mut());
        if LLVMCreateMemoryBufferWithContentsOfFile(bitcode.as_ptr(), &mut buffer, &mut message) != 0 {
            return Err(text(message));
        }
        if LLVMParseBitcodeInContext2(context, buffer, &mut module) != 0 {
            return Err("not bitcode of this LLVM".to_string());
        }

        let kind = |name: &str| LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
        let (thread, naked) = (kind("sanitize_thread"), kind("naked"));
        let attribute = LLVMCreateEnumAttribute(context, thread, 0);
        let mut count = 0;
        let mut function = LLVMGetFirstFunction(module);
        while !function.is_null() {
            let plain = LLVMGetEnumAttributeAtIndex(function, FUNCTION, naked).is_null();
            if LLVMIsDeclaration(function) == 0 && plain {
                LLVMAddAttributeAtIndex(function, FUNCTION, attribute);
                count += 1;
            }
            function = LLVMGetNextFunction(function);
        }

        let triple = LLVMGetTarget(module);
        let mut target = null_mut();
        if LLVMGetTargetFromTriple(triple, &mut target, &mut message) != 0 {
            return Err(text(message));
        }
        let machine =
            LLVMCreateTargetMachine(target, triple, c"x86-64".as_ptr(), c"".as_ptr(), LEVEL, PIC, MODEL);
        if machine.is_null() {
            return Err("no code generator for its target".to_string());
        }
        let error = LLVMRunPasses(module, PASSES.as_ptr(), machine, LLVMCreatePassBuilderOptions());
        if !error.is_null() {
            return Err(text(LLVMGetErrorMessage(error)));
        }
        if LLVMTargetMachineEmitToFile(machine, module, object.as_ptr(), OBJECT, &mut message) != 0 {
            return Err(text(message));
        }
        Ok(count)
    }
}

/// A message of LLVM.
///
/// # Safety
///
/// `message` is null or a string that ends with a zero byte.
unsafe fn text(message: *const c_char) -> String {
    if message == null() {
        return "unknown error of LLVM".to_string();
    }
    // SAFETY: the caller passes such a string.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}
