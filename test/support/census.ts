import type { Db } from 'mongodb'

/** Makes a replica take the census of each of its lifecycles now, whenever the last one was: metrics read it. */
export async function takeCensuses(db: Db, replica: object): Promise<void> {
  const duties = db.collection<{ _id: string }>('phaselock.duties')
  await duties.updateMany({ _id: /^census of / }, { $set: { begunAt: new Date(0) } })
  await (replica as { duties: { runAll(): Promise<void> } }).duties.runAll()
}
