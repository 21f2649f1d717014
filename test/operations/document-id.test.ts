import { describe, expect, test } from '@jest/globals'
import { Long, ObjectId, UUID } from 'mongodb'
import { idsMeantBy, idText, UsageError } from '../../src/operations/index.js'
import { idSpelt } from '../../src/operations/system/document-id.js'

const HEX = '66f0a1b2c3d4e5f60718293a'
const UUID_TEXT = '6f1c1b6e-0b0e-4f6e-9a6e-1c2d3e4f5a6b'

describe('the _ids that a text may mean', () => {
  test.each([
    ['shop', ['shop']],
    [HEX, [new ObjectId(HEX), HEX]],
    [`ObjectId("${HEX}")`, [new ObjectId(HEX)]],
    [`new ObjectId('${HEX}')`, [new ObjectId(HEX)]],
    [`{"$oid": "${HEX}"}`, [new ObjectId(HEX)]],
    ['"42"', ['42']],
    ['42', [42, '42']],
    ['-1.5', [-1.5, '-1.5']],
    ['007', [7, '007']],
    ['123456789012345678', [Long.fromString('123456789012345678'), '123456789012345678']],
    ['9223372036854775807', [Long.MAX_VALUE, '9223372036854775807']],
    ['9223372036854775808', ['9223372036854775808']],
    ['{"$numberLong": "9223372036854775807"}', [9223372036854775807n]],
    ['{"a": 9007199254740993}', [{ a: 9007199254740993n }]],
    ['null', [null, 'null']],
    ['false', [false, 'false']],
    ['{"a": 1, "b": "x"}', [{ a: 1, b: 'x' }]],
    [UUID_TEXT, [new UUID(UUID_TEXT), UUID_TEXT]],
  ])('%s', (text, ids) => {
    expect(idsMeantBy(text)).toEqual(ids)
  })

  test.each([
    ...['', '{"$oid": "x"}', '{', 'ObjectId("x")', 'UUID("x")', '{"$where": 1}', '["a"]'],
    // Each would mean any document that it matches.
    ...[
      '{"$regex": "."}',
      '{"$regex": ".", "$options": "i"}',
      '{"$regularExpression": {"pattern": ".", "options": ""}}',
    ],
    '{"$ref": "a", "$id": 1}',
    // Other numbers would be meant.
    ...['{"a": 1e400}', '{"a": 92233720368547758080}'],
    // It would mean the document of 1970.
    '{"$date": "2027-13-45"}',
  ])('%j is refused', (text) => {
    expect(() => idsMeantBy(text)).toThrow(UsageError)
  })

  test.each([[5], ['5'], [5n], ['true'], [1.5], [new ObjectId(HEX)], [HEX], ['shop'], [{ a: 1 }]])(
    '%p can be spelt so that it means nothing else',
    (id) => {
      expect(idsMeantBy(idSpelt(id))).toEqual([id])
    },
  )

  test.each([
    ['shop'],
    [new ObjectId(HEX)],
    [42],
    [Long.fromString('-9007199254740993')],
    [new UUID(UUID_TEXT)],
    [{ a: 1 }],
  ])('what is printed can be typed again: %p', (id) => {
    expect(idsMeantBy(idText(id))).toContainEqual(id)
  })
})
