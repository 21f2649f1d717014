import 'reflect-metadata'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, test } from '@jest/globals'
import { type INestApplication, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { MongoClient, ObjectId } from 'mongodb'
import { loadQuestionsHttp, type QuestionsHttpRequest } from '../../src/nest/index.js'
import { useDatabase } from '../support/database.js'
import { replicaOf, things, thingWith } from '../support/thing.js'

const DATABASE = Symbol('the database of another module')

describe('/questions', () => {
  const database = useDatabase()
  const lifecycle = thingWith(async (doc, step) => {
    if (step.answer) return step.moveTo('Created')
    const options = doc._id === 'a' ? { options: ['yes', 'no'], to: 'ops' } : {}
    return step.ask({ question: `Ship ${doc._id}?`, ...options })
  })
  let app: INestApplication | undefined
  afterEach(() => app?.close())

  const by = ({ headers }: QuestionsHttpRequest) => headers['x-user'] as string | undefined

  /** What is asked, and a server that knows who sends a request by a header. */
  async function asked(...ids: unknown[]) {
    const replica = replicaOf(database.db, lifecycle)
    await replica.prepare()
    for (const id of ids) {
      await things(database.db).insertOne({ _id: id as string, phase: 'Creating' })
      await replica.runOnce()
    }
    const { QuestionsHttpModule } = await loadQuestionsHttp()
    const base = await serve(QuestionsHttpModule.forRoot({ db: database.db, lifecycles: [lifecycle], by }))
    const get = async (path: string, user = 'ana') => {
      const response = await fetch(`${base}${path}`, { headers: user === '' ? {} : { 'x-user': user } })
      return { status: response.status, body: (await response.json()) as never }
    }
    const post = async (path: string, body: unknown, { user = 'ana', type = 'application/json' } = {}) => {
      const headers = { 'content-type': type, ...(user !== '' && { 'x-user': user }) }
      const sent = typeof body === 'string' ? body : JSON.stringify(body)
      const response = await fetch(`${base}${path}`, { method: 'POST', headers, body: sent })
      return { status: response.status, body: (await response.json()) as never }
    }
    return { replica, get, post }
  }

  async function serve(module: object): Promise<string> {
    app = await NestFactory.create(module as never, { logger: false })
    await app.listen(0, '127.0.0.1')
    return `http://127.0.0.1:${(app.getHttpServer().address() as AddressInfo).port}`
  }

  test('are listed and answered: the document goes on, and the audit has who it was', async () => {
    const { replica, get, post } = await asked('a', 'b')
    const listed = await get('/questions')
    expect(listed).toMatchObject({
      status: 200,
      body: {
        questions: [
          { lifecycle: 'thing', _id: 'a', phase: 'Creating', question: 'Ship a?', options: ['yes', 'no'], to: ['ops'] },
          { lifecycle: 'thing', _id: 'b', question: 'Ship b?', options: [], to: [], deadline: null },
        ],
      },
    })
    const [{ id: question }] = (listed.body as { questions: [{ id: string }] }).questions
    expect(await post('/questions/thing/a', { option: 'yes', reason: 'checked', question })).toEqual({
      status: 200,
      body: { lifecycle: 'thing', _id: 'a', question: 'Ship a?', option: 'yes', by: 'ana', reason: 'checked' },
    })
    await replica.runOnce()
    expect(await things(database.db).findOne({ _id: 'a' })).toMatchObject({ phase: 'Created' })
    expect(await database.db.collection('phaselock.audit').findOne()).toMatchObject({ action: 'answer', by: 'ana' })
    expect((await get('/questions')).body).toMatchObject({ questions: [{ _id: 'b' }] })
  })

  test('of one lifecycle, and those that are meant for somebody', async () => {
    const { get } = await asked('a', 'b')
    const idsAt = async (query: string) =>
      ((await get(`/questions?${query}`)).body as { questions: { _id: string }[] }).questions.map(({ _id }) => _id)
    expect(await idsAt('lifecycle=thing')).toEqual(['a', 'b'])
    expect(await idsAt('to=ops')).toEqual(['a', 'b'])
    expect(await idsAt('to=shop')).toEqual(['b'])
    expect(await get('/questions?lifecycle=other')).toMatchObject({ status: 404, body: { error: 'unknownLifecycle' } })
    expect(await get('/questions?too=ops')).toMatchObject({ status: 400, body: { error: 'invalidRequest' } })
  })

  test('meant for somebody behind a thousand that are meant for others; and that there are more is said', async () => {
    const { get } = await asked('a', 'b')
    const first = (await things(database.db).findOne({ _id: 'a' }))!
    const others = Array.from({ length: 1_001 }, (_, i) => ({ ...first, _id: `z${i}`, n: i }))
    await things(database.db).insertMany(others as never)
    expect((await get('/questions?to=shop')).body).toMatchObject({ questions: [{ _id: 'b' }], more: [] })
    const all = (await get('/questions')).body as { questions: unknown[]; more: string[] }
    expect([all.questions.length, all.more]).toEqual([1_000, ['thing']])
  })

  test('an _id that means two documents is refused with what to send; a pattern is none', async () => {
    const { get, post } = await asked(5, '5')
    const refused = await post('/questions/thing/5', { option: 'now' })
    expect(refused).toMatchObject({ status: 400, body: { error: 'ambiguousId' } })
    const { message } = refused.body as { message: string }
    expect(message).toBe('the _id 5 means 2 documents; give it as one of: {"$numberInt":"5"}, "5"')
    const id = encodeURIComponent('{"$numberInt":"5"}')
    expect(await post(`/questions/thing/${id}`, { option: 'now' })).toMatchObject({ status: 200, body: { _id: 5 } })
    const pattern = encodeURIComponent('{"$regex":"."}')
    const none = await post(`/questions/thing/${pattern}`, { option: 'now' })
    expect(none).toMatchObject({ status: 400, body: { error: 'invalidId' } })
    expect((await get('/questions')).body).toMatchObject({ questions: [{ _id: '5' }] })
  })

  test('a document whose _id is no string', async () => {
    const id = new ObjectId()
    const { get, post } = await asked(id)
    expect((await get('/questions')).body).toMatchObject({ questions: [{ _id: { $oid: id.toHexString() } }] })
    expect(await post(`/questions/thing/${id.toHexString()}`, { option: 'on Monday' })).toMatchObject({ status: 200 })
  })

  test('nobody whom the app does not know sees or answers anything', async () => {
    const { get, post } = await asked('a')
    expect(await get('/questions', '')).toMatchObject({ status: 401, body: { error: 'unknownSender' } })
    expect(await post('/questions/thing/a', { option: 'yes' }, { user: '' })).toMatchObject({ status: 401 })
    expect((await get('/questions')).body).toMatchObject({ questions: [{ _id: 'a' }] })
  })

  test.each([
    ['to no document', 'thing/nobody', { option: 'yes' }, 404, 'noDocument', 'no document with the _id nobody'],
    ['to an unknown lifecycle', 'other/a', { option: 'yes' }, 404, 'unknownLifecycle', "got 'other'"],
    ['that is no option', 'thing/a', { option: 'maybe' }, 409, 'notAnOption', "expected one of yes, no, got 'maybe'"],
    ['to another question', 'thing/a', { option: 'yes', question: 'x' }, 409, 'notAsking', 'something else by now'],
    ['without an option', 'thing/a', {}, 400, 'invalidRequest', 'option'],
    ['that is no object', 'thing/a', '["yes"]', 400, 'invalidRequest', 'expected an object'],
    [
      'with a former field',
      'thing/a',
      { option: 'yes', comment: 'x' },
      400,
      'invalidRequest',
      'expected reason, got comment',
    ],
    ['that says by whom', 'thing/a', { option: 'yes', by: 'eve' }, 400, 'invalidRequest', "unknown option 'by'"],
    ['that is too long', 'thing/a', { option: 'x'.repeat(1_001) }, 400, 'invalidRequest', 'at most 1000'],
    [
      'with an odd _id',
      `thing/${encodeURIComponent('{"$oid":')}`,
      { option: 'yes' },
      400,
      'invalidId',
      'Extended JSON',
    ],
  ])('an answer %s is refused, and the first one counts', async (_, path, body, status, error, message) => {
    const { post } = await asked('a')
    expect(await post(`/questions/${path}`, body)).toMatchObject({
      ...{ status, body: { statusCode: status, error, message: expect.stringContaining(message) } },
    })
    expect(await post('/questions/thing/a', { option: 'no' })).toMatchObject({ status: 200 })
    expect(await post('/questions/thing/a', { option: 'yes' })).toMatchObject({
      ...{ status: 409, body: { error: 'alreadyAnswered', message: expect.stringContaining("ana has answered 'no'") } },
    })
  })

  test.each([
    ['application/x-www-form-urlencoded', 'option=yes'],
    ['text/plain', '{"option":"yes"}'],
  ])('an answer as %s is none', async (type, body) => {
    const { post, get } = await asked('a')
    expect(await post('/questions/thing/a', body, { type })).toMatchObject({ status: 415 })
    expect((await get('/questions')).body).toMatchObject({ questions: [{ _id: 'a' }] })
  })

  test('where no replica has run the lifecycle yet nothing is asked, at the time of the server', async () => {
    const { QuestionsHttpModule } = await loadQuestionsHttp()
    const base = await serve(QuestionsHttpModule.forRoot({ db: database.db, lifecycles: [lifecycle], by: () => 'ana' }))
    const { now, questions } = (await (await fetch(`${base}/questions`)).json()) as never
    expect(questions).toEqual([])
    expect(Math.abs(Date.parse((now as { $date: string }).$date) - Date.now())).toBeLessThan(60_000)
  })

  test('503 while the database does not answer', async () => {
    const client = new MongoClient('mongodb://127.0.0.1:1', { serverSelectionTimeoutMS: 100 })
    const { QuestionsHttpModule } = await loadQuestionsHttp()
    const sources = { db: client.db('x'), lifecycles: [lifecycle], by: () => 'ana' }
    const response = await fetch(`${await serve(QuestionsHttpModule.forRoot(sources))}/questions`)
    expect([response.status, await response.json()]).toMatchObject([503, { error: 'databaseUnavailable' }])
    await client.close()
  })

  test.each([
    [{ by: undefined }, 'by: expected a function that says who sends a request, got undefined'],
    [{ db: 'x', lifecycles: 'x' }, /db: expected a Db of the mongodb driver, got 'x'; lifecycles: expected a list/],
    [{ lifecycles: [undefined] }, /lifecycles.0: expected a lifecycle \(a definition, or what its handle/],
    [{ lifecyles: [] }, "did you mean 'lifecycles'?"],
    [{ auditFor: '5' }, 'auditFor: expected a duration from 1h to 3650d'],
  ])('with %p there is none', async (wrong, message) => {
    const { QuestionsHttpModule } = await loadQuestionsHttp()
    const sources = { db: database.db, lifecycles: [lifecycle], by: () => 'ana', ...wrong } as never
    expect(() => QuestionsHttpModule.forRoot(sources)).toThrow(message)
    const module = QuestionsHttpModule.forRootAsync({ useFactory: () => sources })
    await expect(NestFactory.create(module, { logger: false, abortOnError: false })).rejects.toThrow(message)
  })

  test('with a database that another module has opened', async () => {
    @Module({ providers: [{ provide: DATABASE, useFactory: () => database.db }], exports: [DATABASE] })
    class DatabaseModule {}
    const { QuestionsHttpModule } = await loadQuestionsHttp()
    const useFactory = (db: typeof database.db) => ({ db, lifecycles: [lifecycle], by: () => 'ana' })
    const module = QuestionsHttpModule.forRootAsync({ imports: [DatabaseModule], inject: [DATABASE], useFactory })
    const response = await fetch(`${await serve(module)}/questions`)
    expect(await response.json()).toMatchObject({ questions: [] })
  })
})
