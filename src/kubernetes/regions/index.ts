export {
  InvalidRegion,
  type Region,
  type RegionSource,
  type RegionStatus,
  RegionUnavailable,
  singleRegion,
} from './region.js'
export { type GatewaySettings, REGION_COLLECTION, type RegionDocument } from './region-document.js'
export { regionWorks } from './region-works.js'
export { Regions, type RegionsOptions } from './regions.js'
