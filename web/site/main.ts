import { showWhatIsMissing } from "./shared/webgpu";

void showWhatIsMissing(document.getElementById("notice")!);
