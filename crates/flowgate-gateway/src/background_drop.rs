//! Frees large values on a separate thread, so that the caller does not wait: freeing a conversation takes as long as
//! answering a request, and the caller may hold a contended lock. The caches of conversations and of chat prefixes call
//! [`drop_in_background`] for what they evict.

use std::sync::LazyLock;
use std::sync::mpsc::{SyncSender, sync_channel};

/// The capacity of the queue. When it is full, the caller frees the value.
const QUEUE_CAPACITY: usize = 256;

/// The queue of the freeing thread; `None` if the thread could not be started.
static THREAD: LazyLock<Option<SyncSender<Box<dyn Send>>>> = LazyLock::new(|| {
    let (sender, values) = sync_channel::<Box<dyn Send>>(QUEUE_CAPACITY);
    let thread = std::thread::Builder::new().name("freeing".to_owned());
    thread.spawn(move || values.into_iter().for_each(drop)).ok().map(|_| sender)
});

/// Drops a large value on the thread of this module, so that the caller does not wait until its memory is freed. Drops
/// it in the thread of the caller if the other thread could not be started or its queue is full.
pub(crate) fn drop_in_background(value: impl Send + 'static) {
    if let Some(thread) = &*THREAD {
        // A value that the queue does not take is dropped here.
        let _ = thread.try_send(Box::new(value));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use super::*;

    /// Sends its number when it is dropped.
    struct DropNotifier(Sender<u32>, u32);

    impl Drop for DropNotifier {
        fn drop(&mut self) {
            let _ = self.0.send(self.1);
        }
    }

    #[test]
    fn everything_is_dropped_even_if_it_is_too_much() {
        let (sender, receiver) = channel();
        let count = 4 * u32::try_from(QUEUE_CAPACITY).unwrap();
        for number in 0..count {
            drop_in_background(DropNotifier(sender.clone(), number));
        }
        let mut dropped: Vec<u32> =
            (0..count).map(|_| receiver.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        dropped.sort_unstable();
        assert!(dropped.into_iter().eq(0..count));
    }
}
