/** Versions of this Backhop. Print it if you report a bug. */
export interface BuildInfo {
  /** Version of the core and of the package. */
  readonly version: string
  /** True if it was built with librabbitmq, so that there is a Worker. */
  readonly worker: boolean
  /** Version of librabbitmq at compile time; "" without librabbitmq. */
  readonly librabbitmqCompiled: string
  /** Version of librabbitmq that runs. */
  readonly librabbitmqLoaded: string
  toString (): string
}

/** Returns the versions of this Backhop. */
export function buildInfo (): BuildInfo
