//! Gives the library the name under which programs ask for NVIDIA's driver.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
}
