// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_device` and the list of them; the fabric of this process, found once, from the environment; the path of its
//! emulated sysfs (`engine::fabric::sysfs`), and the reading of a file below any such path. Nothing happens before the
//! first verb: the library is preloaded into shells and launchers that never use it. Grade: setup. Threads: any.
//! Devices live until the process ends, so that no list of them can be freed too early.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::{fs, io};

use crate::engine::fabric::sysfs;
use crate::engine::fabric::sysfs::root;
use crate::engine::{DeviceSpec, Errno, Fabric, FabricSpec, Result};
use crate::fabric_folder;
use crate::fabric_folder::{belong_to_run, check_private, make_private};
use crate::sys::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device};
use crate::verbs::set_errno;

/// First part of the names of the (absent) device files below /dev/infiniband.
pub(crate) const DEV_NAME_PREFIX: &str = "uverbs-softhca";

/// A device as programs hold it. Some (libmlx5) look behind the public structure, and must find zeros there.
#[repr(C)]
pub(crate) struct SoftDevice {
    public: ibv_device,
    zeros: [u64; 32],
    pub(crate) index: usize,
    guid: u64,
}

/// The data of this process before it joins its fabric.
pub(crate) struct Library {
    pub(crate) spec: FabricSpec,
    /// `*mut SoftDevice`, never freed, never written after they are made.
    devices: Vec<usize>,
    fabric: Mutex<Option<Arc<Fabric>>>,
}

impl Library {
    /// Returns the fabric, which this process joins at its first call; a child joins anew after a fork.
    pub(crate) fn fabric(&self) -> Result<Arc<Fabric>> {
        let mut joined = self.fabric.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(fabric) = joined.as_ref().filter(|fabric| fabric.pid() == std::process::id()) {
            return Ok(Arc::clone(fabric));
        }
        let fabric = Fabric::join(self.spec.clone()).inspect_err(|errno| {
            eprintln!("softhca: cannot join the fabric in {}: {errno}", self.spec.folder.display());
        })?;
        belong_to_run(&self.spec.folder);
        // The parent's fabric, if there is one, must not be dropped: that would remove it for the parent.
        if let Some(parents) = joined.replace(Arc::clone(&fabric)) {
            std::mem::forget(parents);
        }
        Ok(fabric)
    }
}

/// Returns the fabric and devices of this process. Prints an error once, when it occurs.
pub(crate) fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<Result<Library>> = OnceLock::new();
    let found = LIBRARY.get_or_init(|| {
        describe().map_err(|error| {
            eprintln!("softhca: {error:#}");
            let cause = error.root_cause().downcast_ref::<io::Error>();
            Errno(cause.and_then(io::Error::raw_os_error).unwrap_or(libc::EINVAL))
        })
    });
    found.as_ref().map_err(|errno| *errno)
}

fn describe() -> anyhow::Result<Library> {
    let config = fabric_folder::config()?;
    let (folder, is_made_on_demand) = fabric_folder::place(&config)?;
    // `softhca run` removes its folder at the end; a process that still runs must not create it again.
    (if is_made_on_demand { make_private } else { check_private })(&folder)?;
    sysfs::make(&folder, &config.devices)?;
    let devices = config
        .devices
        .iter()
        .enumerate()
        .map(|(index, spec)| Box::into_raw(Box::new(SoftDevice::new(index, spec, &folder))) as usize)
        .collect();
    Ok(Library { spec: config.fabric_in(folder), devices, fabric: Mutex::new(None) })
}

impl SoftDevice {
    fn new(index: usize, spec: &DeviceSpec, folder: &Path) -> SoftDevice {
        let mut public =
            ibv_device { node_type: IBV_NODE_CA as _, transport_type: IBV_TRANSPORT_IB as _, ..ibv_device::default() };
        let sysfs = sysfs::root(folder);
        put(&mut public.name, &spec.name);
        put(&mut public.dev_name, &format!("{DEV_NAME_PREFIX}{index}"));
        put(&mut public.dev_path, &sysfs.join("class/infiniband").join(&spec.name).to_string_lossy());
        put(&mut public.ibdev_path, &sysfs.join("class/infiniband").join(&spec.name).to_string_lossy());
        SoftDevice { public, zeros: [0; 32], index, guid: spec.node_guid }
    }

    /// # Safety
    /// `device` is from [`ibv_get_device_list`].
    pub(crate) unsafe fn of<'a>(device: *mut ibv_device) -> &'a SoftDevice {
        // SAFETY: every ibv_device of this library is the first field of a SoftDevice, which lives for ever, unchanged.
        unsafe { &*device.cast::<SoftDevice>() }
    }
}

fn put<const N: usize>(array: &mut [c_char; N], text: &str) {
    for (to, from) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
}

/// `ibv_get_device_list(3)`: the fabric's adapters. Null with `errno` if this process can join no fabric.
pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let devices = match library() {
        Ok(library) => &library.devices[..],
        Err(errno) => {
            set_errno(errno.0);
            return std::ptr::null_mut();
        }
    };
    // SAFETY: calloc has no preconditions; the array has one element more than there are devices, for the null.
    let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) }.cast::<*mut ibv_device>();
    if list.is_null() {
        set_errno(libc::ENOMEM);
        return list;
    }
    for (place, device) in devices.iter().enumerate() {
        // SAFETY: `place` is below the number of elements allocated.
        unsafe { list.add(place).write(*device as *mut ibv_device) };
    }
    if !count.is_null() {
        // SAFETY: writable (rule V).
        unsafe { count.write(devices.len() as c_int) };
    }
    list
}

pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: null, or made by calloc (`ibv_get_device_list`), and not freed before (rule V).
    unsafe { libc::free(list.cast()) };
}

pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: `device` is from `ibv_get_device_list` (rule V).
    unsafe { SoftDevice::of(device) }.public.name.as_ptr()
}

/// `ibv_get_device_guid(3)`: big-endian.
pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: `device` is from `ibv_get_device_list` (rule V).
    unsafe { SoftDevice::of(device) }.guid.to_be()
}

/// `ibv_get_device_index(3)`: the adapter's place in the fabric, from 0.
pub(crate) unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: `device` is from `ibv_get_device_list` (rule V).
    unsafe { SoftDevice::of(device) }.index as c_int
}

const _: () = assert!(std::mem::offset_of!(SoftDevice, zeros) <= size_of::<ibv_device>() + 8);

/// Returns the root of the emulated tree; `/sys` where there is no fabric. The string lives for ever.
pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    PATH.get_or_init(|| {
        library()
            .ok()
            .and_then(|library| CString::new(root(&library.spec.folder).as_os_str().as_bytes()).ok())
            .unwrap_or_else(|| c"/sys".to_owned())
    })
    .as_ptr()
}

/// Reads `directory/file` into `buffer`, without the newline at its end. Returns the length, or -1 with `errno`.
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: C strings (rule V).
    let (directory, file) = unsafe { (CStr::from_ptr(directory), CStr::from_ptr(file)) };
    let path =
        Path::new(std::ffi::OsStr::from_bytes(directory.to_bytes())).join(std::ffi::OsStr::from_bytes(file.to_bytes()));
    let mut content = Vec::new();
    if let Err(error) = fs::File::open(path).and_then(|file| file.take(size as u64).read_to_end(&mut content)) {
        set_errno(error.raw_os_error().unwrap_or(libc::EIO));
        return -1;
    }
    if content.last() == Some(&b'\n') {
        content.pop();
    } else if content.len() == size {
        content.pop(); // the terminating zero needs a place
    }
    if size > 0 {
        // SAFETY: at most `size - 1` bytes of content and the zero; the caller's buffer has `size`.
        unsafe {
            std::ptr::copy_nonoverlapping(content.as_ptr(), buffer.cast::<u8>(), content.len());
            buffer.add(content.len()).write(0);
        }
    }
    content.len() as c_int
}
