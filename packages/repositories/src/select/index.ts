export { ATTRIBUTES_FILE, type AttributesFile, GeneratedFiles } from './generated.js'
export {
  DEFAULT_MAX_FILE_BYTES,
  LISTED_REASONS,
  type ListedReason,
  patternProblems,
  Selection,
  type SelectionSettings,
} from './selection.js'
