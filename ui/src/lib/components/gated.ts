/** The refusals of a gated repo. */

import type { ErrorCode } from '../wire';

const GATED = ['token_missing', 'token_withheld', 'token_wrong', 'licence_not_accepted'] as const;

export type GatedCode = (typeof GATED)[number];

export function isGated(code: ErrorCode): code is GatedCode {
  return (GATED as readonly string[]).includes(code);
}
