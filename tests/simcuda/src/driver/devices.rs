//! Start, cards, contexts. A context is its card's: there is one each.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::{
    CURRENT, Code, Driver, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_SUPPORTED, call, handle,
    index, write,
};
use crate::settings::Card;

/// Starts the driver.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(_flags: c_uint) -> Code {
    call("cuInit", |driver| match driver.settings.init {
        0 if driver.settings.cards.is_empty() => Err(NO_DEVICE.into()),
        0 => {
            driver.is_initialised = true;
            Ok(())
        }
        code => Err(code.into()),
    })
}

/// Writes the version: 12000 is 12.0.
///
/// # Safety
/// `version` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Code {
    // SAFETY: passed on from this function's caller.
    call("cuDriverGetVersion", |driver| unsafe { write(version, driver.settings.version) })
}

/// Writes the number of cards.
///
/// # Safety
/// `count` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Code {
    // SAFETY: passed on from this function's caller.
    call("cuDeviceGetCount", |driver| unsafe { write(count, driver.settings.cards.len() as c_int) })
}

/// Writes a card's handle, which is its index.
///
/// # Safety
/// `device` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Code {
    call("cuDeviceGet", |driver| {
        driver.described(ordinal)?;
        // SAFETY: passed on from this function's caller.
        unsafe { write(device, ordinal) }
    })
}

/// Writes a card's name.
///
/// # Safety
/// `name` points to `length` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> Code {
    call("cuDeviceGetName", |driver| {
        let text = driver.described(device)?.name.clone();
        // SAFETY: passed on from this function's caller.
        unsafe { write_text(&text, name, length) }
    })
}

/// Writes the address of a card on its bus.
///
/// # Safety
/// `name` points to `length` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(name: *mut c_char, length: c_int, device: c_int) -> Code {
    call("cuDeviceGetPCIBusId", |driver| {
        driver.described(device)?;
        // SAFETY: passed on from this function's caller.
        unsafe { write_text(&format!("0000:{:02X}:00.0", device + 1), name, length) }
    })
}

/// Writes a card's identity.
///
/// # Safety
/// `uuid` is null or points to 16 writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) -> Code {
    call("cuDeviceGetUuid", |driver| {
        driver.described(device)?;
        let mut bytes = *b"simulated card 0";
        bytes[15] += device as u8;
        // SAFETY: passed on from this function's caller.
        unsafe { write(uuid, bytes) }
    })
}

/// The same under the name that newer programs ask for.
///
/// # Safety
/// `uuid` is null or points to 16 writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> Code {
    // SAFETY: passed on from this function's caller.
    unsafe { cuDeviceGetUuid(uuid, device) }
}

/// Writes a card's whole memory.
///
/// # Safety
/// `bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> Code {
    call("cuDeviceTotalMem_v2", |driver| {
        let total = driver.described(device)?.total_bytes as usize;
        // SAFETY: passed on from this function's caller.
        unsafe { write(bytes, total) }
    })
}

/// Writes what a card can.
///
/// # Safety
/// `value` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> Code {
    call("cuDeviceGetAttribute", |driver| {
        let attribute = attribute_of(driver.described(device)?, device, attribute);
        // SAFETY: passed on from this function's caller.
        unsafe { write(value, attribute) }
    })
}

/// An attribute by its number in `CUdevice_attribute`.
fn attribute_of(card: &Card, device: c_int, attribute: c_int) -> c_int {
    match attribute {
        1..=3 => {
            if attribute == 3 {
                64
            } else {
                1024
            }
        }
        5 => c_int::MAX,
        6 | 7 => 65535,
        8 => STATIC_SHARED as c_int,
        10 => 32,
        12 | 82 => 65536,
        13 => 1_500_000,
        14 => 512,
        16 => card.n_multiprocessors,
        31 | 41 | 75 | 76 | 99 | 115 => match attribute {
            75 => (card.compute / 10) as c_int,
            76 => (card.compute % 10) as c_int,
            _ => 1,
        },
        33 => device + 1,
        36 => 7_000_000,
        37 => 192,
        38 => 3 << 20,
        39 => {
            if card.compute == 75 {
                1024
            } else {
                1536
            }
        }
        81 => most_shared(card) as c_int + 1024,
        97 => most_shared(card) as c_int,
        106 => 16,
        _ => 0,
    }
}

/// Bytes of shared memory that a kernel may have without asking for more.
pub(crate) const STATIC_SHARED: usize = 48 << 10;

/// Bytes of shared memory that a kernel may ask for. Source: CUDA C++ Programming Guide, "Technical Specifications per
/// Compute Capability".
pub(crate) fn most_shared(card: &Card) -> usize {
    let kib = match card.compute {
        ..=75 => 64,
        80 | 87 => 163,
        86 | 89 | 120 => 99,
        _ => 227,
    };
    kib << 10
}

/// Makes a card's context, or finds it.
///
/// # Safety
/// `context` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> Code {
    call("cuDevicePrimaryCtxRetain", |driver| {
        driver.described(device)?;
        driver.check_there(device as usize)?;
        // SAFETY: passed on from this function's caller.
        unsafe { write(context, handle(device as usize)) }
    })
}

/// Gives a context back. It stays, as other users may have it.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Code {
    call("cuDevicePrimaryCtxRelease_v2", |driver| driver.described(device).map(|_| ()))
}

/// Makes a context the calling thread's.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> Code {
    call("cuCtxSetCurrent", |driver| {
        let card = if context.is_null() { None } else { Some(index(context)?) };
        if card.is_some_and(|card| card >= driver.settings.cards.len()) {
            return Err(INVALID_CONTEXT.into());
        }
        CURRENT.set(card);
        Ok(())
    })
}

/// Writes the calling thread's context.
///
/// # Safety
/// `context` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> Code {
    call("cuCtxGetCurrent", |_| {
        let current = CURRENT.get().map_or(std::ptr::null_mut(), handle);
        // SAFETY: passed on from this function's caller.
        unsafe { write(context, current) }
    })
}

/// Writes the card of the calling thread's context.
///
/// # Safety
/// `device` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> Code {
    call("cuCtxGetDevice", |driver| {
        let card = driver.card()? as c_int;
        // SAFETY: passed on from this function's caller.
        unsafe { write(device, card) }
    })
}

/// Flags, limits and preferences change nothing here.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetFlags(_flags: c_uint) -> Code {
    call("cuCtxSetFlags", |_| Ok(()))
}

/// Writes the priorities that streams may have.
///
/// # Safety
/// Both are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Code {
    call("cuCtxGetStreamPriorityRange", |_| {
        // SAFETY: passed on from this function's caller.
        unsafe {
            write(least, 0)?;
            write(greatest, -5)
        }
    })
}

/// Tells whether a card may reach another's memory.
///
/// # Safety
/// `can` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> Code {
    call("cuDeviceCanAccessPeer", |driver| {
        driver.described(device)?;
        driver.described(peer)?;
        // SAFETY: passed on from this function's caller.
        unsafe { write(can, c_int::from(device != peer)) }
    })
}

/// Lets the current card reach another's memory.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxEnablePeerAccess(peer: *mut c_void, flags: c_uint) -> Code {
    call("cuCtxEnablePeerAccess", |driver| {
        let (card, peer) = (driver.card()?, index(peer)?);
        if flags != 0 || card == peer {
            return Err(INVALID_VALUE.into());
        }
        driver.peers.push((card, peer));
        driver.maps.clear();
        Ok(())
    })
}

/// Pools of memory are not simulated.
///
/// # Safety
/// None is needed; the type is the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetDefaultMemPool(_pool: *mut *mut c_void, _device: c_int) -> Code {
    call("cuDeviceGetDefaultMemPool", |_| Err(NOT_SUPPORTED.into()))
}

impl Driver {
    /// What the settings say of a card.
    pub(crate) fn described(&self, device: c_int) -> super::Done<&Card> {
        let card = usize::try_from(device).ok().and_then(|device| self.settings.cards.get(device));
        card.ok_or_else(|| INVALID_DEVICE.into())
    }
}

/// Writes a text with its closing zero, cut where the place ends.
///
/// # Safety
/// `place` is null or points to `length` writable bytes.
unsafe fn write_text(text: &str, place: *mut c_char, length: c_int) -> super::Done {
    if place.is_null() || length <= 0 {
        return Err(INVALID_VALUE.into());
    }
    let n = text.len().min(length as usize - 1);
    // SAFETY: `n` bytes and the zero are writable.
    unsafe {
        text.as_ptr().copy_to_nonoverlapping(place.cast(), n);
        place.add(n).write(0);
    }
    Ok(())
}
