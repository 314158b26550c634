// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines for the user, by the `fi_log` of the libfabric that has loaded the provider (`FI_LOG_LEVEL`). Its symbols are
//! looked up, because some MPIs hide them: then nothing is printed. Grade: setup. Threads: any. Tests: by hand.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::{fi_prov_ini, sys};

type Enabled = unsafe extern "C" fn(*const sys::fi_provider, sys::fi_log_level, sys::fi_log_subsys) -> c_int;
type Print = unsafe extern "C" fn(
    *const sys::fi_provider,
    sys::fi_log_level,
    sys::fi_log_subsys,
    *const c_char,
    c_int,
    *const c_char,
    ...
);

static FUNCTIONS: OnceLock<Option<(Enabled, Print)>> = OnceLock::new();

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `name` is a C string.
    Some(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }).filter(|found| !found.is_null())
}

fn functions() -> Option<(Enabled, Print)> {
    *FUNCTIONS.get_or_init(|| {
        let (enabled, print) = (symbol(c"fi_log_enabled")?, symbol(c"fi_log")?);
        // SAFETY: these are libfabric's functions of this type (`rdma/providers/fi_log.h`) since its version 1.0.
        Some(unsafe {
            (std::mem::transmute::<*mut c_void, Enabled>(enabled), std::mem::transmute::<*mut c_void, Print>(print))
        })
    })
}

/// Prints a line about `of` (`FI_LOG_CORE`, ...) if the user asks for lines of this level.
pub(crate) fn line(level: sys::fi_log_level, of: sys::fi_log_subsys, text: &str) {
    let Some((enabled, print)) = functions() else { return };
    let provider = fi_prov_ini();
    let Ok(text) = CString::new(text) else { return };
    // SAFETY: libfabric's provider, and C strings; the format takes one.
    unsafe {
        if enabled(provider, level, of) != 0 {
            print(provider, level, of, c"ibex".as_ptr(), 0, c"%s\n".as_ptr(), text.as_ptr());
        }
    }
}

/// Prints why a request is refused.
pub(crate) fn refused(of: sys::fi_log_subsys, why: &str) {
    line(sys::FI_LOG_INFO, of, why);
}
