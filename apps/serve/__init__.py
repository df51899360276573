"""The server: ``voiceseq serve``. OpenAI's API, WebSockets, Wyoming; other processes listen to what comes."""
