import { Injectable } from '@nestjs/common'

/** Stands for the outside world, used by the old code and the new: certificates and sites. Asking for the same twice is harmless. */
@Injectable()
export class WebHost {
  private readonly certificates = new Map<string, number>()
  private readonly sites = new Set<string>()
  /** Every call that made or removed something, as 'create a.example.org': to see that none happens twice. */
  readonly effects: string[] = []

  /** Asks for a certificate unless that was done; it is ready after a moment. */
  async ensureCertificate(host: string): Promise<{ ready: boolean }> {
    const asked = this.certificates.get(host) ?? Date.now()
    if (!this.certificates.has(host)) this.effects.push(`certificate ${host}`)
    this.certificates.set(host, asked)
    return { ready: Date.now() - asked > 300 }
  }

  async createSite(host: string): Promise<void> {
    this.effects.push(`create ${host}`)
    this.sites.add(host)
  }

  async removeSite(host: string): Promise<void> {
    this.effects.push(`remove ${host}`)
    this.sites.delete(host)
  }

  async removeCertificate(host: string): Promise<void> {
    this.certificates.delete(host)
  }
}
