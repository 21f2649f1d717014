import { Injectable } from '@nestjs/common'

/** Stands for the outside world: a mail server that needs a moment to make a box. Asking twice is harmless. */
@Injectable()
export class MailServer {
  private readonly boxes = new Map<string, number>()

  createBox(address: string): void {
    if (!this.boxes.has(address)) this.boxes.set(address, Date.now())
  }

  isReady(address: string): boolean {
    const madeAt = this.boxes.get(address)
    return madeAt !== undefined && Date.now() - madeAt > 500
  }

  removeBox(address: string): void {
    this.boxes.delete(address)
  }
}
