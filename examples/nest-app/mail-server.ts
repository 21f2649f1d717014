import { Injectable } from '@nestjs/common'

/** Stands for the outside world: a mail server that needs a moment to make a box. Asking twice is harmless. */
@Injectable()
export class MailServer {
  private readonly boxes = new Map<string, number>()

  async createBox(address: string): Promise<void> {
    if (!this.boxes.has(address)) this.boxes.set(address, Date.now())
  }

  async isReady(address: string): Promise<boolean> {
    const madeAt = this.boxes.get(address)
    return madeAt !== undefined && Date.now() - madeAt > 500
  }

  async removeBox(address: string): Promise<void> {
    this.boxes.delete(address)
  }
}
