// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control and performance variables, registered with Open MPI's variable system, so that `ompi_info`, mpirun's command
//! line, the environment, files and `MPI_T` have them. Called by plugin-abi. Grade: setup. Threads: one registers; any
//! reads a performance variable.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use super::sys;

/// Storage and default of a control variable. Open MPI writes the user's value to it, and a tool's in its thread.
#[derive(Clone, Copy, Debug)]
pub enum Storage<'a> {
    /// `unsigned long long`.
    Count(&'static AtomicU64, u64),
    /// `char *`; Open MPI copies the default, and owns the copy that it puts there.
    Text(&'static AtomicPtr<c_char>, &'a str),
    /// `bool`; a tool may write any byte, of which those that are not 0 mean true.
    Flag(&'static AtomicU8, bool),
}

/// Whose values must go together, as `MPI_T` says it to tools.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Each process may have its own.
    Local = sys::MCA_BASE_VAR_SCOPE_LOCAL as isize,
    /// Those of all processes.
    All = sys::MCA_BASE_VAR_SCOPE_ALL as isize,
}

/// Registers the control variable `<framework>_<component>_<name>` with its default. `component` gives the names.
/// `level` is the `MPI_T` verbosity, 1 (user, basic) to 9 (developer, all). A tool may write it until [`keep`].
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

/// Fixes the value of a control variable, if there is one of this name: from then on `MPI_T` refuses a tool's write.
pub fn keep(framework: &CStr, component: &CStr, name: &str) {
    let Ok(name) = CString::new(name) else { return };
    if let Some(index) = find(framework, Some(component), Some(&name)) {
        // SAFETY: a number that Open MPI has given; it changes its own record of the variable.
        unsafe { sys::mca_base_var_set_flag(index, sys::MCA_BASE_VAR_FLAG_SETTABLE, false) };
    }
}

/// Waits for a tool that is writing a control variable in another thread.
pub fn await_writers() {
    let mut count = 0;
    // SAFETY: writes to the local; it takes the lock that a tool's call has while it writes.
    unsafe { sys::PMPI_T_cvar_get_num(&raw mut count) };
}

/// What a performance variable is, in `MPI_T`'s words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// Counts events; read as the difference since its handle was started.
    Counter = sys::MCA_BASE_PVAR_CLASS_COUNTER as isize,
    /// A sum of what events carried, such as bytes.
    Aggregate = sys::MCA_BASE_PVAR_CLASS_AGGREGATE as isize,
    /// A sum of times, in the unit that its help names.
    Timer = sys::MCA_BASE_PVAR_CLASS_TIMER as isize,
    /// How much of a resource is in use now.
    Level = sys::MCA_BASE_PVAR_CLASS_LEVEL as isize,
    /// How much of a resource there is.
    Size = sys::MCA_BASE_PVAR_CLASS_SIZE as isize,
    /// The most that was in use.
    HighWatermark = sys::MCA_BASE_PVAR_CLASS_HIGHWATERMARK as isize,
    /// The least that was left.
    LowWatermark = sys::MCA_BASE_PVAR_CLASS_LOWWATERMARK as isize,
}

/// What a performance variable is bound to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bind {
    /// Nothing.
    NoObject = sys::MCA_BASE_VAR_BIND_NO_OBJECT as isize,
    /// A communicator: the object that its reading is told of.
    Communicator = sys::MCA_BASE_VAR_BIND_MPI_COMM as isize,
}

/// How wide its values are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Width {
    /// `unsigned`
    Unsigned = sys::MCA_BASE_VAR_TYPE_UNSIGNED_INT as isize,
    /// `unsigned long long`
    UnsignedLongLong = sys::MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG as isize,
}

/// Called for the value of a performance variable: the variable, where to write a value of its type, the object.
pub type Read = unsafe extern "C" fn(*const sys::mca_base_pvar_t, *mut c_void, *mut c_void) -> c_int;

/// Called when a performance variable's handle is made (then it answers the number of values), started, stopped, freed.
pub type Notify =
    unsafe extern "C" fn(*mut sys::mca_base_pvar_t, sys::mca_base_pvar_event_t, *mut c_void, *mut c_int) -> c_int;

/// What Open MPI wants of a watermark's value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wanted {
    /// The first value of a handle.
    First,
    /// The value of a handle that is reset; in the object's other handles the extreme so far is kept ([`mark`]).
    Reset,
    /// The extreme since any of the object's handles was reset, for Open MPI to compare with what the handle has.
    Extreme,
}

/// Returns what Open MPI wants of a watermark whose value it wants at `value`.
///
/// # Safety
/// Within a [`Read`] of this variable, with its arguments.
#[must_use]
pub unsafe fn wanted_of_watermark(variable: *const sys::mca_base_pvar_t, value: *const c_void) -> Wanted {
    // SAFETY: within a `Read`, as the caller says: Open MPI holds the lock of the variable's handles.
    match unsafe { sys::ibex_pvar_wanted(variable, value) } {
        sys::IBEX_PVAR_MADE => Wanted::First,
        sys::IBEX_PVAR_RESET => Wanted::Reset,
        _ => Wanted::Extreme,
    }
}

/// Raises a high watermark's value in each handle of the object to at least `extreme`; lowers a low one's likewise.
///
/// # Safety
/// Within a [`Read`] or a [`Write`] of this variable, with its object.
pub unsafe fn mark(variable: *const sys::mca_base_pvar_t, object: *const c_void, extreme: u64) {
    // SAFETY: within a `Read` or a `Write`: Open MPI holds the handles' lock; a watermark's have values of its type.
    unsafe { sys::ibex_pvar_mark(variable, object, extreme) };
}

/// Called when a tool writes a performance variable: the variable, the value, the object. Open MPI keeps the value.
pub type Write = unsafe extern "C" fn(*mut sys::mca_base_pvar_t, *const c_void, *mut c_void) -> c_int;

unsafe extern "C" fn ignore_written(_: *mut sys::mca_base_pvar_t, _: *const c_void, _: *mut c_void) -> c_int {
    sys::OPAL_SUCCESS
}

/// A performance variable that always runs. A tool may reset it in its handle, unless it is a level or a size.
#[derive(Clone, Copy, Debug)]
pub struct Performance<'a> {
    /// Its name, without the component's.
    pub name: &'a str,
    /// What it counts, in words.
    pub help: &'a str,
    /// What it is.
    pub class: Class,
    /// How wide its values are.
    pub width: Width,
    /// What it is bound to.
    pub bind: Bind,
    /// Reads it.
    pub read: Read,
    /// What else is to be done where a tool writes it.
    pub write: Option<Write>,
    /// How many values it has; `None`: one.
    pub notify: Option<Notify>,
    /// Its place in the caller's table, which its functions get back ([`index`]).
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
#[must_use]
pub unsafe fn index(variable: *const sys::mca_base_pvar_t) -> usize {
    // SAFETY: within a `Read` or a `Write`: Open MPI's record of the variable.
    unsafe { (*variable).ctx }.addr()
}

/// The text of another part's variable, such as (`"btl"`, none, none) for the list of BTLs the user asked for.
#[must_use]
pub fn text(framework: &CStr, component: Option<&CStr>, name: Option<&CStr>) -> Option<String> {
    let place: *mut *const c_char = storage(find(framework, component, name)?, sys::MCA_BASE_VAR_TYPE_STRING)?;
    // SAFETY: the storage of a registered variable of type text.
    let text = unsafe { place.read() };
    if text.is_null() {
        return None;
    }
    // SAFETY: Open MPI's own NUL-terminated copy of the text.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Whether there is a variable of this name.
#[must_use]
pub fn exists(framework: &CStr, component: Option<&CStr>, name: Option<&str>) -> bool {
    let name = name.and_then(|name| CString::new(name).ok());
    find(framework, component, name.as_deref()).is_some()
}

/// Whether the user set the variable (command line, environment, file or `MPI_T`), rather than leaving its default.
#[must_use]
pub fn is_set(framework: &CStr, component: Option<&CStr>, name: Option<&CStr>) -> bool {
    let Some(index) = find(framework, component, name) else { return false };
    let mut source = sys::MCA_BASE_VAR_SOURCE_DEFAULT;
    // SAFETY: only the source is asked for, and written to the local.
    let code = unsafe { sys::mca_base_var_get_value(index, std::ptr::null(), &raw mut source, null_mut()) };
    code == sys::OPAL_SUCCESS && source != sys::MCA_BASE_VAR_SOURCE_DEFAULT
}

/// Sets another part's variable of type `int`, unless the user has; false: the user has, or there is no such variable.
/// Writes to its storage, because the variable system refuses to set most variables once they are registered.
///
/// # Safety
/// The variable's owner reads it in this thread alone now: while Open MPI is being initialised.
#[must_use]
pub unsafe fn set_unless_chosen(framework: &CStr, component: Option<&CStr>, name: Option<&CStr>, value: c_int) -> bool {
    let place = find(framework, component, name).and_then(|index| storage::<c_int>(index, sys::MCA_BASE_VAR_TYPE_INT));
    let Some(place) = place.filter(|_| !is_set(framework, component, name)) else { return false };
    // SAFETY: a registered int's storage, which lives as long as its owner; nobody else uses it, as the caller says.
    unsafe { place.write(value) };
    true
}

fn find(framework: &CStr, component: Option<&CStr>, name: Option<&CStr>) -> Option<c_int> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: texts that are only compared; null stands for "none".
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
