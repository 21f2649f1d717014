/** Builds the S3 server of the tests, so that the first test that needs it doesn't wait for it. */
import { buildS3 } from './s3.mjs'

await buildS3()
