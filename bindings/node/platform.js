/** The package that holds the library for the platform this runs on. */
export function platformPackage() {
  const libc = process.platform === 'linux' ? '-gnu' : '';
  return `session-awareness-${process.platform}-${process.arch}${libc}`;
}
