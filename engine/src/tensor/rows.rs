//! Activations of a forward pass. Every device that takes part has room for them; they are current where they were written last
//! and wherever they were copied to since, and they stay there until they are written again.

use std::ops::{Deref, DerefMut};

use super::zeroed;
use crate::cuda::{Buffer, DeviceRows, Gpu, Gpus, Pinned, Ticket};
use crate::error::EngineError;
use crate::place::Device;

/// Activations, [n_rows, width]; the shape changes from use to use within what was allocated.
#[derive(Debug)]
pub struct Rows {
    n_rows: usize,
    width: usize,
    /// Where operations take them.
    device: Device,
    host: HostElems,
    host_is_current: bool,
    gpus: Vec<OnGpu>,
}

/// Room on a GPU.
#[derive(Debug)]
struct OnGpu {
    buffer: Buffer,
    is_current: bool,
    /// The last copy from the host to here.
    sent: Ticket,
    /// A copy from here to the host of what is here now.
    fetched: Option<Ticket>,
}

#[derive(Debug)]
enum HostElems {
    Pageable(Vec<f32>),
    Pinned(Pinned),
}

impl Rows {
    /// Allocates room for `max_rows` rows of `max_width` with the processor and on all GPUs.
    pub(crate) fn new(gpus: &Gpus, max_rows: usize, max_width: usize) -> Result<Self, EngineError> {
        let elems = zeroed(super::BUFFERS, max_rows, max_width)?;
        Self::with_host(gpus, HostElems::Pageable(elems), max_width)
    }

    /// The same for rows that go from one device to another in every step: the host's memory stays where it is, if the system
    /// can do that, so that the GPU copies it by itself.
    pub(crate) fn crossing(gpus: &Gpus, max_rows: usize, max_width: usize) -> Result<Self, EngineError> {
        match gpus.iter().next().and_then(|gpu| Pinned::zeroed(gpu, max_rows * max_width)) {
            Some(pinned) => Self::with_host(gpus, HostElems::Pinned(pinned), max_width),
            None => Self::new(gpus, max_rows, max_width),
        }
    }

    fn with_host(gpus: &Gpus, host: HostElems, width: usize) -> Result<Self, EngineError> {
        let room = |gpu| {
            let buffer = Buffer::new(gpu, size_of_val(&*host))?;
            Ok(OnGpu { buffer, is_current: false, sent: Ticket::default(), fetched: None })
        };
        let gpus = gpus.iter().map(room).collect::<Result<_, EngineError>>()?;
        Ok(Self { n_rows: 0, width, device: Device::Cpu, host, host_is_current: true, gpus })
    }

    /// Gives the rows another shape; what they held is lost.
    pub fn reshape(&mut self, n_rows: usize, width: usize) {
        self.n_rows = n_rows;
        self.width = width;
    }

    /// Rows at present.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Elements per row at present.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Where operations take them.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Makes the rows live on `device`; those that are there already are not copied again.
    pub(crate) fn move_to(&mut self, device: Device) {
        match device {
            Device::Cpu => self.bring_to_host(),
            Device::Cuda(_) => self.bring_to_gpu(device),
        }
        self.device = device;
    }

    /// Copies the rows to `device` too; they live where they are.
    pub(crate) fn copy_to(&mut self, device: Device) {
        let home = self.device;
        self.move_to(device);
        self.device = home;
    }

    /// Starts to copy the rows to the host, if they are not there, and waits for nothing; `move_to` does.
    pub(crate) fn fetch(&mut self) {
        if self.host_is_current {
            return;
        }
        let n_elems = self.n_rows * self.width;
        let Some(from) = self.gpus.iter().position(|room| room.is_current && room.fetched.is_none()) else { return };
        // Another GPU may still read what was sent to it from here.
        for (_, other) in self.gpus.iter().enumerate().filter(|(i, _)| *i != from) {
            other.buffer.gpu().wait(other.sent);
        }
        let from = &mut self.gpus[from];
        let gpu = from.buffer.gpu();
        // SAFETY: nobody looks at the host's elements before `bring_to_host` has waited, since they are not current.
        from.fetched = Some(unsafe { gpu.begin_read(from.buffer.at(), &mut self.host[..n_elems]) });
    }

    fn bring_to_host(&mut self) {
        if self.host_is_current {
            return;
        }
        self.fetch();
        let fetched = self.gpus.iter().find_map(|room| Some((room.buffer.gpu(), room.fetched?)));
        let (gpu, ticket) = fetched.expect("rows are current somewhere");
        gpu.wait(ticket);
        self.host_is_current = true;
    }

    fn bring_to_gpu(&mut self, device: Device) {
        let n_elems = self.n_rows * self.width;
        if self.gpus[self.room(device)].is_current {
            return;
        }
        self.bring_to_host();
        let room = self.room(device);
        let to = &mut self.gpus[room];
        // SAFETY: the host's elements are not written before `elems_mut` has waited.
        let ticket = unsafe { to.buffer.gpu().begin_write(to.buffer.at(), &self.host[..n_elems]) };
        // What the driver cannot copy by itself it has taken over when it returns.
        to.sent = if matches!(self.host, HostElems::Pinned(_)) { ticket } else { Ticket::default() };
        to.is_current = true;
    }

    fn room(&self, device: Device) -> usize {
        let is_here = |room: &OnGpu| Device::Cuda(room.buffer.gpu().index()) == device;
        self.gpus.iter().position(is_here).expect("the placement's devices have room for all rows")
    }

    /// The elements as the processor's kernels take them. Panics if they are on a GPU only.
    pub(crate) fn elems(&self) -> &[f32] {
        assert!(self.host_is_current, "rows on {} for the processor", self.device);
        &self.host[..self.n_rows * self.width]
    }

    /// The elements as the processor's kernels fill or change them; from now on they live there.
    pub(crate) fn elems_mut(&mut self) -> &mut [f32] {
        for room in &mut self.gpus {
            room.buffer.gpu().wait(room.sent.max(room.fetched.unwrap_or_default()));
            (room.is_current, room.fetched) = (false, None);
        }
        (self.device, self.host_is_current) = (Device::Cpu, true);
        &mut self.host[..self.n_rows * self.width]
    }

    /// The elements as a GPU's kernels take them. Panics if they are not there.
    pub(crate) fn on(&self, gpu: &Gpu) -> DeviceRows {
        let room = &self.gpus[self.room(Device::Cuda(gpu.index()))];
        assert!(room.is_current, "rows on {} for {gpu:?}", self.device);
        self.device_rows(room)
    }

    /// The elements as a GPU's kernels fill or change them; from now on they live there.
    pub(crate) fn on_mut(&mut self, gpu: &Gpu) -> DeviceRows {
        let device = Device::Cuda(gpu.index());
        let own = self.room(device);
        for (i, room) in self.gpus.iter_mut().enumerate() {
            // A copy of what was here may still be under way to the host: kernels that follow come behind it.
            (room.is_current, room.fetched) = (i == own, None);
        }
        (self.device, self.host_is_current) = (device, false);
        self.device_rows(&self.gpus[own])
    }

    fn device_rows(&self, room: &OnGpu) -> DeviceRows {
        let rows = DeviceRows { at: room.buffer.at(), n_rows: self.n_rows, width: self.width };
        assert!(rows.n_elems() * size_of::<f32>() <= room.buffer.n_bytes(), "{rows:?} in {:?}", room.buffer);
        rows
    }
}

impl Deref for HostElems {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            HostElems::Pageable(elems) => elems,
            HostElems::Pinned(elems) => elems,
        }
    }
}

impl DerefMut for HostElems {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            HostElems::Pageable(elems) => elems,
            HostElems::Pinned(elems) => elems,
        }
    }
}
