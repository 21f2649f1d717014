import { type Db, MongoServerError } from 'mongodb'

const METHODS = [
  ...['find', 'aggregate', 'findOne', 'findOneAndUpdate', 'findOneAndDelete', 'updateOne', 'updateMany', 'distinct'],
  ...['insertOne', 'insertMany', 'bulkWrite', 'deleteOne', 'deleteMany', 'countDocuments', 'createIndex', 'indexes'],
]
const CURSORS = ['find', 'aggregate']

/** A database whose user has no right on these collections. */
export function without(db: Db, ...names: string[]): Db {
  return new Proxy(db, {
    get: (target, key) => {
      const value = Reflect.get(target, key)
      if (key !== 'collection') return typeof value === 'function' ? value.bind(target) : value
      return (name: string, ...rest: never[]) => {
        if (!names.includes(name)) return target.collection(name, ...rest)
        const refuse = () => Promise.reject(new MongoServerError({ message: `not authorized on ${name}`, code: 13 }))
        const methods = METHODS.map((method) => [
          method,
          CURSORS.includes(method) ? () => ({ toArray: refuse }) : refuse,
        ])
        return Object.assign(Object.create(target.collection(name)), Object.fromEntries(methods))
      }
    },
  })
}
