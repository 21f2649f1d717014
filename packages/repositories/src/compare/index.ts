export { type Changes, compare, type ListedFile, type RecordedFile, type Renamed } from './compare.js'
