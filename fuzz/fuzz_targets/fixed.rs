//! Hash maps are seeded with the same numbers in every run, so that a run can be repeated.
//!
//! The standard library asks the system for them by this name, and finds this function first.

#[unsafe(no_mangle)]
extern "C" fn getrandom(bytes: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: whoever calls it says that so many bytes are there.
    unsafe { std::ptr::write_bytes(bytes, 7, length) };
    length.cast_signed()
}
