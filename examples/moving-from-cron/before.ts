/** A task service by hand: cron, lock by timestamp, one handler for each phase. What docs/guides/moving-from-cron-services.md starts from. */
import { Injectable } from '@nestjs/common'
import { Cron, CronExpression } from '@nestjs/schedule'
import { Db, type WithId } from 'mongodb'
import { WebHost } from './web-host.js'

interface Website {
  _id: string
  state: 'Running' | 'Deleted'
  phase: 'Creating' | 'Created' | 'Deleting' | 'Deleted'
  lockedAt: Date
  createdAt: Date
  updatedAt: Date
}

export const TASK_LOCK_INIT_TIME = new Date(0)
const LOCK_TIMEOUT_MS = 30_000

@Injectable()
export class WebsiteTaskService {
  constructor(
    private readonly db: Db,
    private readonly host: WebHost,
  ) {}

  @Cron(CronExpression.EVERY_SECOND)
  async tick() {
    await this.handleDeletedState()
    await Promise.all([this.handleCreatingPhase(), this.handleDeletingPhase()])
    await this.handleDeletedPhase()
  }

  async handleCreatingPhase() {
    const site = await this.findAndLock('Creating')
    if (!site) return
    const certificate = await this.host.ensureCertificate(site._id)
    if (!certificate.ready) return this.relock(site)
    await this.host.createSite(site._id)
    await this.sites.updateOne(
      { _id: site._id, phase: 'Creating' },
      { $set: { phase: 'Created', lockedAt: TASK_LOCK_INIT_TIME, updatedAt: new Date() } },
    )
  }

  async handleDeletingPhase() {
    const site = await this.findAndLock('Deleting')
    if (!site) return
    await this.host.removeSite(site._id)
    await this.host.removeCertificate(site._id)
    await this.sites.updateOne(
      { _id: site._id, phase: 'Deleting' },
      { $set: { phase: 'Deleted', lockedAt: TASK_LOCK_INIT_TIME, updatedAt: new Date() } },
    )
  }

  async handleDeletedState() {
    await this.sites.updateMany(
      { state: 'Deleted', phase: { $in: ['Creating', 'Created'] }, lockedAt: { $lt: this.lockExpired() } },
      { $set: { phase: 'Deleting', lockedAt: TASK_LOCK_INIT_TIME, updatedAt: new Date() } },
    )
  }

  async handleDeletedPhase() {
    await this.sites.deleteMany({ state: 'Deleted', phase: 'Deleted' })
  }

  private async findAndLock(phase: Website['phase']) {
    return this.sites.findOneAndUpdate(
      { phase, lockedAt: { $lt: this.lockExpired() } },
      { $set: { lockedAt: new Date() } },
      { sort: { lockedAt: 1, updatedAt: 1 }, returnDocument: 'after' },
    )
  }

  /** Looks again after a tenth of the time waited, up to two minutes; then after the whole timeout. */
  private async relock(site: WithId<Website>) {
    const waitedMs = Date.now() - site.updatedAt.getTime()
    const pauseMs = waitedMs <= 120_000 ? Math.min(waitedMs / 10, LOCK_TIMEOUT_MS) : LOCK_TIMEOUT_MS
    const lockedAt = new Date(Date.now() - LOCK_TIMEOUT_MS + pauseMs)
    await this.sites.updateOne({ _id: site._id, phase: site.phase }, { $set: { lockedAt } })
  }

  private lockExpired() {
    return new Date(Date.now() - LOCK_TIMEOUT_MS)
  }

  private get sites() {
    return this.db.collection<Website>('Website')
  }
}
