export { ATTRIBUTES_FILE, type AttributesFile, GeneratedFiles } from './generated.js'
export {
  DEFAULT_MAX_FILE_BYTES,
  FileSelection,
  LISTED_REASONS,
  type ListedReason,
  patternProblems,
  type SelectionSettings,
} from './selection.js'
