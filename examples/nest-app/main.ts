/** Phaselock in a Nest app: mailboxes are inserted, worked on until all are Created, then one is deleted. */
import { NestFactory } from '@nestjs/core'
import { AppModule } from './app.module.js'
import { Mailboxes } from './mailboxes.js'

async function main(): Promise<void> {
  const app = await NestFactory.createApplicationContext(AppModule, { logger: ['warn', 'error'] })
  app.enableShutdownHooks()

  const mailboxes = app.get(Mailboxes)
  const names = ['ann', 'bea', 'cem'].map((name) => `${name}-${process.pid}`)

  console.log('three mailboxes are inserted')
  for (const name of names) await mailboxes.create(name)
  for (const name of names) await mailboxes.until(name, 'Created')

  console.log('the owner of the first one does not want it any more')
  await mailboxes.remove(names[0]!)
  await mailboxes.until(names[0]!, 'Deleted')

  console.log('what the documents say:')
  for (const name of names) console.log(`  ${await mailboxes.describe(name)}`)

  await app.close()
}

void main()
