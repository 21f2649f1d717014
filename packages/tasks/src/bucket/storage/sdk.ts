import type { $Command, S3ClientResolvedConfig, ServiceInputTypes, ServiceOutputTypes } from '@aws-sdk/client-s3'

export type Sdk = typeof import('@aws-sdk/client-s3')
export type Command<Input extends ServiceInputTypes, Output extends ServiceOutputTypes> = $Command<
  Input,
  Output,
  S3ClientResolvedConfig,
  ServiceInputTypes,
  ServiceOutputTypes
>

/** Loads the S3 client, a separate package, when a bucket is first worked on: without buckets it isn't needed. */
export function loadSdk(): Promise<Sdk> {
  return import('@aws-sdk/client-s3').catch((cause) => {
    throw new Error(
      "expected the package '@aws-sdk/client-s3' (version 3) for buckets: npm install @aws-sdk/client-s3",
      {
        cause,
      },
    )
  })
}
