import { type Db, MongoServerError } from 'mongodb'

/**
 * A database in which claims of documents of one collection fail, as with a full disk, while all else is sent to `db`.
 *
 * @param fails called with each claim; false: it is sent
 */
export const withFailingClaims = (db: Db, collectionName: string, fails: () => boolean): Db =>
  new Proxy(db, {
    get(target, name) {
      if (name !== 'collection') return Reflect.get(target, name)
      return (called: string, ...more: never[]) => {
        const collection = target.collection(called, ...more)
        if (called !== collectionName) return collection
        const failing =
          <Args extends never[], Result>(send: (...args: Args) => Promise<Result>) =>
          async (...args: Args) => {
            if (fails()) throw new MongoServerError({ message: 'out of disk space', code: 14_031 })
            return send(...args)
          }
        return Object.assign(collection, {
          updateMany: failing(collection.updateMany.bind(collection)),
          bulkWrite: failing(collection.bulkWrite.bind(collection)),
          findOneAndUpdate: failing(collection.findOneAndUpdate.bind(collection) as never),
        })
      }
    },
  })
