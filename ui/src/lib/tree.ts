/** A chat is a tree of messages, of which one path is shown. Pure functions over the flat list that the store gives. */

import type { Message } from './wire';

/** From the root to `leaf`. */
export function pathTo(messages: readonly Message[], leaf: number | null): Message[] {
  const byId = new Map(messages.map((message) => [message.id, message]));
  const path: Message[] = [];
  let next = leaf === null ? undefined : byId.get(leaf);
  while (next && path.length <= messages.length) {
    path.push(next);
    next = next.parent === null ? undefined : byId.get(next.parent);
  }
  return path.reverse();
}

/** Messages that stand at the same place as this one, oldest first, and which of them this is. */
export function siblings(messages: readonly Message[], message: Message): { ids: number[]; index: number } {
  const ids = messages.filter((other) => other.parent === message.parent && other.role === message.role).map((other) => other.id);
  return { ids, index: ids.indexOf(message.id) };
}
