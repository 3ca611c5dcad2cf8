//! Memory modules, where the system tells anybody: on Linux, udev keeps what the firmware's table says of them. The table itself
//! is closed to ordinary users, and other systems tell only through services that are slow to ask.
use crate::wire::RamModules;

/// Where udev keeps the firmware's table. Source: systemd's `dmi_memory_id`, in `60-dmi-id.rules` since version 248.
const UDEV: &str = "/run/udev/data/+dmi:id";

/// What is plugged in; `None` where nobody says.
pub(super) fn probe() -> Option<RamModules> {
    parse(&std::fs::read_to_string(UDEV).ok()?)
}

/// Slots without a module are marked as not present, or have no size.
fn parse(text: &str) -> Option<RamModules> {
    let value = |slot: u32, name: &str| {
        let key = format!("E:MEMORY_DEVICE_{slot}_{name}=");
        text.lines().find_map(|line| line.strip_prefix(key.as_str()))
    };
    let n_slots: u32 = text.lines().find_map(|line| line.strip_prefix("E:MEMORY_ARRAY_NUM_DEVICES="))?.parse().ok()?;
    let is_filled = |slot: &u32| {
        value(*slot, "PRESENT") != Some("0")
            && value(*slot, "SIZE").and_then(|size| size.parse::<u64>().ok()).is_some_and(|size| size > 0)
    };
    let filled: Vec<u32> = (0..n_slots.min(MAX_SLOTS)).filter(is_filled).collect();
    let speed = |slot: &u32| value(*slot, "CONFIGURED_SPEED_MTS")?.parse().ok();
    (!filled.is_empty()).then(|| RamModules {
        n: filled.len() as u32,
        // All run at the pace of the slowest.
        mega_transfers_per_s: filled.iter().filter_map(speed).min(),
    })
}

/// More than any board has.
const MAX_SLOTS: u32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filled_slots_are_counted() {
        let text = "I:1\nE:MEMORY_ARRAY_NUM_DEVICES=4\nE:MEMORY_DEVICE_0_SIZE=17179869184\n\
            E:MEMORY_DEVICE_0_CONFIGURED_SPEED_MTS=3200\nE:MEMORY_DEVICE_1_PRESENT=0\n\
            E:MEMORY_DEVICE_2_SIZE=17179869184\nE:MEMORY_DEVICE_2_CONFIGURED_SPEED_MTS=2667\nE:MEMORY_DEVICE_3_SIZE=0\n";
        assert_eq!(parse(text), Some(RamModules { n: 2, mega_transfers_per_s: Some(2667) }));
    }

    #[test]
    fn what_nobody_says_is_unknown() {
        for text in ["", "E:ID_MODEL=x", "E:MEMORY_ARRAY_NUM_DEVICES=2\n", "E:MEMORY_ARRAY_NUM_DEVICES=many"] {
            assert_eq!(parse(text), None, "{text}");
        }
        let no_speed = "E:MEMORY_ARRAY_NUM_DEVICES=1\nE:MEMORY_DEVICE_0_SIZE=5\n";
        assert_eq!(parse(no_speed), Some(RamModules { n: 1, mega_transfers_per_s: None }));
    }
}
