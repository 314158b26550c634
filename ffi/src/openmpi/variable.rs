// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control and performance variables, registered with Open MPI's variable system: `ompi_info` lists them, the command
//! line of mpirun, the environment and parameter files set them, and `MPI_T` accesses them. Called by plugin-abi.
//! Grade: setup. Threads: one registers; any reads a performance variable.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use super::sys;

/// Storage and default of a control variable. Open MPI writes the user's value to it, and in a tool's thread a tool's.
#[derive(Clone, Copy, Debug)]
pub enum Storage<'a> {
    /// `unsigned long long`.
    Count(&'static AtomicU64, u64),
    /// `char *`; Open MPI copies the default, stores a pointer to its copy, and owns the copy.
    Text(&'static AtomicPtr<c_char>, &'a str),
    /// `bool`; a tool may write any byte: all but 0 mean true.
    Flag(&'static AtomicU8, bool),
}

/// The processes that must have the same value of a control variable (`MPI_T_SCOPE_*`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// None: each process may have its own value.
    Local = sys::MCA_BASE_VAR_SCOPE_LOCAL as isize,
    /// All processes.
    All = sys::MCA_BASE_VAR_SCOPE_ALL as isize,
}

/// Registers the control variable `<framework>_<component>_<name>` with its default; `component` has the first two
/// names. `level` is the `MPI_T` verbosity, 1 (user, basic) to 9 (developer, all). Tools may write it until [`keep`].
///
/// # Errors
/// The OPAL code of the refusal.
pub fn control(
    component: &sys::mca_base_component_t,
    name: &str,
    help: &str,
    level: u8,
    scope: Scope,
    storage: Storage<'_>,
) -> Result<(), i32> {
    let (name, help) = (copied(name)?, copied(help)?);
    let default;
    let (kind, storage) = match storage {
        Storage::Count(place, default) => {
            place.store(default, Ordering::Relaxed);
            (sys::MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, place.as_ptr().cast::<c_void>())
        }
        Storage::Text(place, text) => {
            default = copied(text)?;
            // Open MPI replaces the pointer by its own copy before this returns.
            place.store(default.as_ptr().cast_mut(), Ordering::Relaxed);
            (sys::MCA_BASE_VAR_TYPE_STRING, place.as_ptr().cast())
        }
        Storage::Flag(place, default) => {
            place.store(default.into(), Ordering::Relaxed);
            (sys::MCA_BASE_VAR_TYPE_BOOL, place.as_ptr().cast())
        }
    };
    // SAFETY: the callee copies the texts; the storage is static.
    let code = unsafe {
        sys::mca_base_component_var_register(
            component,
            name.as_ptr(),
            help.as_ptr(),
            kind,
            null_mut(),
            0,
            sys::MCA_BASE_VAR_FLAG_SETTABLE,
            info_level(level),
            scope as sys::mca_base_var_scope_t,
            storage,
        )
    };
    if code < 0 { Err(code) } else { Ok(()) }
}

fn copied(text: &str) -> Result<CString, i32> {
    CString::new(text).map_err(|_| sys::OPAL_ERR_BAD_PARAM)
}

/// Fixes the value of the control variable of this name, if it exists: `MPI_T` then refuses writes of tools.
pub fn keep(framework: &CStr, component: &CStr, name: &str) {
    let Ok(name) = CString::new(name) else { return };
    if let Some(index) = find(framework, Some(component), Some(&name)) {
        // SAFETY: the index is Open MPI's, and Open MPI changes its own record of the variable.
        unsafe { sys::mca_base_var_set_flag(index, sys::MCA_BASE_VAR_FLAG_SETTABLE, false) };
    }
}

/// Waits for a tool that is writing a control variable in another thread.
pub fn await_writers() {
    let mut count = 0;
    // SAFETY: writes to the local. It takes the lock that a tool's call holds while it writes.
    unsafe { sys::PMPI_T_cvar_get_num(&raw mut count) };
}

/// The class of a performance variable (`MPI_T_PVAR_CLASS_*`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// Number of events since the handle was started.
    Counter = sys::MCA_BASE_PVAR_CLASS_COUNTER as isize,
    /// Sum of a quantity of events, such as bytes.
    Aggregate = sys::MCA_BASE_PVAR_CLASS_AGGREGATE as isize,
    /// Sum of times, in the unit that the help text names.
    Timer = sys::MCA_BASE_PVAR_CLASS_TIMER as isize,
    /// Present use of a resource.
    Level = sys::MCA_BASE_PVAR_CLASS_LEVEL as isize,
    /// Size of a resource.
    Size = sys::MCA_BASE_PVAR_CLASS_SIZE as isize,
    /// Largest use of a resource.
    HighWatermark = sys::MCA_BASE_PVAR_CLASS_HIGHWATERMARK as isize,
    /// Smallest amount that was left of a resource.
    LowWatermark = sys::MCA_BASE_PVAR_CLASS_LOWWATERMARK as isize,
}

/// The type of the MPI object to which a performance variable is bound.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bind {
    /// No object.
    NoObject = sys::MCA_BASE_VAR_BIND_NO_OBJECT as isize,
    /// A communicator; [`Read`] gets it.
    Communicator = sys::MCA_BASE_VAR_BIND_MPI_COMM as isize,
}

/// The C type of a performance variable's values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Width {
    /// `unsigned`
    Unsigned = sys::MCA_BASE_VAR_TYPE_UNSIGNED_INT as isize,
    /// `unsigned long long`
    UnsignedLongLong = sys::MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG as isize,
}

/// Returns the value of a performance variable. Arguments: the variable, the place for a value of its type, the object.
pub type Read = unsafe extern "C" fn(*const sys::mca_base_pvar_t, *mut c_void, *mut c_void) -> c_int;

/// Called when a handle of a performance variable is made (returns the number of values), started, stopped or freed.
pub type Notify =
    unsafe extern "C" fn(*mut sys::mca_base_pvar_t, sys::mca_base_pvar_event_t, *mut c_void, *mut c_int) -> c_int;

/// The purpose for which Open MPI reads a watermark.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wanted {
    /// The first value of a handle.
    First,
    /// The new value of a handle that is reset. The object's other handles keep their extremes ([`mark`]).
    Reset,
    /// The extreme since the last reset of any handle of the object; Open MPI compares it with the handle's value.
    Extreme,
}

/// Returns the purpose of a read of a watermark to `value`.
///
/// # Safety
/// Within a [`Read`] of this variable, with its arguments.
pub unsafe fn wanted_of_watermark(variable: *const sys::mca_base_pvar_t, value: *const c_void) -> Wanted {
    // SAFETY: within a `Read`, as the caller says: Open MPI holds the lock of the variable's handles.
    match unsafe { sys::ibex_pvar_wanted(variable, value) } {
        sys::IBEX_PVAR_MADE => Wanted::First,
        sys::IBEX_PVAR_RESET => Wanted::Reset,
        _ => Wanted::Extreme,
    }
}

/// Raises a high watermark in each handle of the object to at least `extreme`; lowers a low one to at most `extreme`.
///
/// # Safety
/// Within a [`Read`] or a [`Write`] of this variable, with its object.
pub unsafe fn mark(variable: *const sys::mca_base_pvar_t, object: *const c_void, extreme: u64) {
    // SAFETY: within a `Read` or a `Write`, so Open MPI holds the handles' lock; their values have the right type.
    unsafe { sys::ibex_pvar_mark(variable, object, extreme) };
}

/// Called when a tool writes a performance variable. Arguments: the variable, the value, the object. Open MPI stores
/// the value.
pub type Write = unsafe extern "C" fn(*mut sys::mca_base_pvar_t, *const c_void, *mut c_void) -> c_int;

unsafe extern "C" fn ignore_written(_: *mut sys::mca_base_pvar_t, _: *const c_void, _: *mut c_void) -> c_int {
    sys::OPAL_SUCCESS
}

/// A performance variable. It always counts. A tool may reset it in its handle, unless it is a level or a size.
#[derive(Clone, Copy, Debug)]
pub struct Performance<'a> {
    /// Name, without the component's.
    pub name: &'a str,
    /// Help text.
    pub help: &'a str,
    /// Class.
    pub class: Class,
    /// Type of the values.
    pub width: Width,
    /// Type of the object.
    pub bind: Bind,
    /// Reads the values.
    pub read: Read,
    /// Called when a tool writes; `None`: nothing else is to be done.
    pub write: Option<Write>,
    /// Returns the number of values; `None`: one value.
    pub notify: Option<Notify>,
    /// Index in the caller's table; the functions get it by [`index`].
    pub index: usize,
}

/// Registers a performance variable of the `MPI_T` verbosity 4 (tuner, basic). Only the names of `component` are read.
///
/// # Errors
/// The OPAL code of the refusal.
///
/// # Safety
/// `read`, `write` and `notify` are callable from any thread until the component is closed.
pub unsafe fn performance(component: &sys::mca_base_component_t, variable: &Performance) -> Result<(), i32> {
    let (name, help) = (copied(variable.name)?, copied(variable.help)?);
    let flags = match variable.class {
        Class::Level | Class::Size => sys::MCA_BASE_PVAR_FLAG_READONLY | sys::MCA_BASE_PVAR_FLAG_CONTINUOUS,
        _ => sys::MCA_BASE_PVAR_FLAG_CONTINUOUS,
    };
    // SAFETY: the callee copies the texts; the caller says that the callbacks may be called from any thread.
    let code = unsafe {
        sys::mca_base_component_pvar_register(
            component,
            name.as_ptr(),
            help.as_ptr(),
            info_level(4),
            variable.class as c_int,
            variable.width as sys::mca_base_var_type_t,
            null_mut(),
            variable.bind as c_int,
            flags,
            Some(variable.read),
            variable.write.or(Some(ignore_written)),
            variable.notify,
            std::ptr::without_provenance_mut(variable.index),
        )
    };
    if code < 0 { Err(code) } else { Ok(()) }
}

/// The [`Performance::index`] of a variable.
///
/// # Safety
/// Within a [`Read`] or a [`Write`] of this variable.
pub unsafe fn index(variable: *const sys::mca_base_pvar_t) -> usize {
    // SAFETY: within a `Read` or a `Write`: Open MPI's record of the variable.
    unsafe { (*variable).ctx }.addr()
}

/// The value of a string variable of another component or framework: (`"btl"`, none, none) is the user's list of BTLs.
pub fn text(framework: &CStr, component: Option<&CStr>, name: Option<&CStr>) -> Option<String> {
    let place: *mut *const c_char = storage(find(framework, component, name)?, sys::MCA_BASE_VAR_TYPE_STRING)?;
    // SAFETY: the storage of a registered string variable.
    let text = unsafe { place.read() };
    if text.is_null() {
        return None;
    }
    // SAFETY: Open MPI's own NUL-terminated copy of the text.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Whether Open MPI has a variable of this name.
pub fn exists(framework: &CStr, component: Option<&CStr>, name: Option<&str>) -> bool {
    let name = name.and_then(|name| CString::new(name).ok());
    find(framework, component, name.as_deref()).is_some()
}

/// Whether the user set the variable (command line, environment, file or `MPI_T`), rather than leaving its default.
pub fn is_set(framework: &CStr, component: Option<&CStr>, name: Option<&CStr>) -> bool {
    let Some(index) = find(framework, component, name) else { return false };
    let mut source = sys::MCA_BASE_VAR_SOURCE_DEFAULT;
    // SAFETY: writes only the source, to the local.
    let code = unsafe { sys::mca_base_var_get_value(index, std::ptr::null(), &raw mut source, null_mut()) };
    code == sys::OPAL_SUCCESS && source != sys::MCA_BASE_VAR_SOURCE_DEFAULT
}

/// Sets an `int` variable of another component or framework, unless the user has set it. Writes to the storage, because
/// the variable system refuses to set most variables once they are registered.
///
/// # Safety
/// Open MPI is being initialised, so the variable's owner reads it in this thread alone.
pub unsafe fn set_unless_chosen(framework: &CStr, component: Option<&CStr>, name: Option<&CStr>, value: c_int) {
    let place = find(framework, component, name).and_then(|index| storage::<c_int>(index, sys::MCA_BASE_VAR_TYPE_INT));
    if let Some(place) = place.filter(|_| !is_set(framework, component, name)) {
        // SAFETY: a registered int's storage, which lives as long as its owner; nobody else uses it, says the caller.
        unsafe { place.write(value) };
    }
}

fn find(framework: &CStr, component: Option<&CStr>, name: Option<&CStr>) -> Option<c_int> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the callee only compares the texts; null stands for "none".
    let index =
        unsafe { sys::mca_base_var_find(c"opal".as_ptr(), framework.as_ptr(), pointer(component), pointer(name)) };
    (index >= 0).then_some(index)
}

/// The storage of a variable; `None` if it is of another type.
fn storage<T>(index: c_int, kind: sys::mca_base_var_type_t) -> Option<*mut T> {
    let mut place: *mut T = null_mut();
    // SAFETY: the callee writes the address of the variable's storage to the local.
    let code = unsafe { sys::mca_base_var_get_value(index, (&raw mut place).cast(), null_mut(), null_mut()) };
    (is_of_type(index, kind) && code == sys::OPAL_SUCCESS && !place.is_null()).then_some(place)
}

fn is_of_type(index: c_int, kind: sys::mca_base_var_type_t) -> bool {
    let mut variable = std::ptr::null();
    // SAFETY: the callee writes the address of its own record of the variable to the local.
    let code = unsafe { sys::mca_base_var_get(index, &raw mut variable) };
    // SAFETY: on success a record that lives as long as the variable is registered, and whose type is never changed.
    code == sys::OPAL_SUCCESS && !variable.is_null() && unsafe { (&raw const (*variable).mbv_type).read() } == kind
}

fn info_level(level: u8) -> sys::mca_base_var_info_lvl_t {
    sys::OPAL_INFO_LVL_1 + sys::mca_base_var_info_lvl_t::from(level.clamp(1, 9) - 1)
}
