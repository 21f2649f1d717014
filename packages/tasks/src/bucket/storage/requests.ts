import type { ServiceInputTypes, ServiceOutputTypes } from '@aws-sdk/client-s3'
import type { Holder, RunningStep } from 'phaselock/tasks'
import type { StorageRequest } from './errors.js'
import type { Command } from './sdk.js'
import type { Storage } from './storages.js'
import { translate } from './translate.js'

/**
 * The requests of one step about one bucket.
 *
 * - Each ends by its time limit, and when the step's signal aborts.
 * - Before a write is sent, and each time that the client sends it again, the lease is checked by this process's own
 *   clock; a write that would continue past the lease's end is cut off there.
 */
export class Requests {
  constructor(
    readonly storage: Storage,
    readonly bucket: string,
    private readonly holder: Holder,
    private readonly step: RunningStep,
  ) {}

  /** @param action as in policies, for messages @throws Unavailable, StorageForbidden, StorageRefused, StorageAnswer */
  read<I extends ServiceInputTypes, O extends ServiceOutputTypes>(action: string, command: Command<I, O>): Promise<O> {
    return this.send(action, command, this.storage.requestTimeoutMs)
  }

  /** @throws NoLongerHeld if nothing was sent because the lease is over; else as `read` */
  async write<I extends ServiceInputTypes, O extends ServiceOutputTypes>(
    action: string,
    command: Command<I, O>,
  ): Promise<O> {
    this.assertLeased()
    command.middlewareStack.add(
      (next) => (args) => {
        this.assertLeased()
        return next(args)
      },
      // The last stage before the request is sent: it is signed, and counted as an attempt.
      { step: 'deserialize', priority: 'low', name: 'phaselockLease' },
    )
    return this.send(action, command, Math.min(this.storage.requestTimeoutMs, this.step.leaseLeftMs()))
  }

  /** Call it before the step writes elsewhere. @throws NoLongerHeld */
  assertLeased(): void {
    if (this.step.signal.aborted || this.step.leaseLeftMs() === 0) throw this.holder.lost()
  }

  request(action: string): StorageRequest {
    return { action, bucket: this.bucket, region: this.storage.label }
  }

  private async send<I extends ServiceInputTypes, O extends ServiceOutputTypes>(
    action: string,
    command: Command<I, O>,
    withinMs: number,
  ): Promise<O> {
    const { signal } = this.step
    signal.throwIfAborted()
    const late = new AbortController()
    const timer = setTimeout(() => late.abort(), withinMs)
    try {
      return await this.storage.client.send(command, { abortSignal: AbortSignal.any([signal, late.signal]) })
    } catch (error) {
      if (error === signal.reason || signal.aborted) throw signal.reason
      if (late.signal.aborted) throw translate(new Error(`no answer within ${withinMs} ms`), this.request(action))
      if (error instanceof Error && error.name === 'NoLongerHeld') throw error
      throw translate(error, this.request(action))
    } finally {
      clearTimeout(timer)
    }
  }
}
