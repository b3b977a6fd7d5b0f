//! The program `tallystick`; everything is in the library, so that tests reach it.

// A fifth of the server's processor time went into the C library's allocator, which serves many short-lived
// buffers from several threads badly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    tallystick::cli::main()
}
