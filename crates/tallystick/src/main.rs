//! The program `tallystick`; everything is in the library, so that tests reach it.

fn main() -> std::process::ExitCode {
    tallystick::cli::main()
}
